"""What holds in every case: the client sent what was asked for, and reports each request once."""

from __future__ import annotations

from collections.abc import Sequence

from truth.cases import Case
from truth.finding import Finding, Level, judged
from truth.log import OK, Entry, Log
from truth.matching import named
from truth.result import COUNTS, LOAD, PERCENTILES, Result
from truth.rules.percentiles import of_summary

# Those that judge the number of completed requests themselves.
OF_COUNTS = ("left_out", "failures", "ended_by_time")
SUMMARY_MS = 1.0  # by which a percentile may be rounded


def unaccounted(case: Case, log: Log, result: Result) -> list[Finding]:
    """Only what is wrong: fewer requests than asked for, or many more than are counted, one that is
    reported twice or that the log does not have, rows that are not as many as the client says,
    answers that it does not report, and percentiles of its summary that are not those of its
    rows."""
    found = [
        _too_few(case, log, result),
        _in_no_count(case, log, result),
        _twice(log, result),
        _unknown(log, result),
        _other_count(result),
        _not_reported(case, log, result),
        *of_summary(result, SUMMARY_MS, result.doubts_about(PERCENTILES)),
    ]
    return [each for each in found if each is not None and each.level != Level.RIGHT]


def of_load(case: Case, log: Log) -> list[Sequence[Entry]]:
    """Which requests may be those that were asked for: the last ones, as many (probes and warm-up
    come before), the first ones (a client may send more than it was asked for), or all."""
    entries = sorted(log.entries, key=lambda entry: entry.received_ns)
    asked = case.load.requests
    return [entries[-asked:], entries[:asked], entries]


def completed_of(result: Result) -> int | None:
    """As the client says, else its rows; None: it has neither."""
    if result.completed is not None:
        return result.completed
    return len(result.requests) or None


def _too_few(case: Case, log: Log, result: Result) -> Finding | None:
    asked = case.load.requests
    if case.load.seconds or len(log.entries) >= asked:
        return None
    sent = str(len(log.entries))
    level = judged(False, result.doubts_about(LOAD))
    return Finding("requests sent", str(asked), sent, "0", level)


def _in_no_count(case: Case, log: Log, result: Result) -> Finding | None:
    """Probes, warm-up, repeated requests and those in flight at the end may be in no count."""
    completed = completed_of(result)
    if completed is None:
        return None
    most = case.load.warmup + max(case.load.streams, case.load.requests // 2)
    others = len(log.entries) - completed - (result.failed or 0)
    if case.load.seconds or others <= most:
        return None
    level = judged(False, result.doubts_about(LOAD))
    return Finding("requests in no count", "0", str(others), f"at most {most}", level)


def _twice(log: Log, result: Result) -> Finding | None:
    numbers = [entry.number for _, entry in named(result.requests, log.entries)]
    twice = len(numbers) - len(set(numbers))
    if not twice:
        return None
    level = judged(False, result.doubts_about(COUNTS))
    return Finding("requests reported twice", "0", str(twice), "0", level)


def _unknown(log: Log, result: Result) -> Finding | None:
    """Where the log has the names of some."""
    known = len(named(result.requests, log.entries))
    with_name = 0
    for seen in result.requests:
        with_name += seen.number is not None or bool(seen.request_id)
    if not known or known == with_name:
        return None
    level = judged(False, result.doubts_about(COUNTS))
    unknown = str(with_name - known)
    return Finding("requests that the log has not", "0", unknown, "0", level)


def _other_count(result: Result) -> Finding | None:
    rows = len(result.requests)
    if result.completed is None or not rows or result.completed == rows:
        return None
    level = judged(False, result.doubts_about(COUNTS))
    return Finding(
        "rows of completed requests", str(result.completed), str(rows), "0", level
    )


def _not_reported(case: Case, log: Log, result: Result) -> Finding | None:
    seen = completed_of(result)
    if seen is None or case.load.seconds or case.rule in OF_COUNTS:
        return None
    answered = [sum(each.outcome == OK for each in part) for part in of_load(case, log)]
    if seen in answered:
        return None
    level = judged(False, result.doubts_about(COUNTS))
    return Finding("completed", str(answered[0]), str(seen), "0", level)
