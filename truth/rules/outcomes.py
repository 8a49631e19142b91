"""Rules of which requests count: failed ones, those that are left out, the end of a run."""

from __future__ import annotations

from collections.abc import Sequence

from truth.cases import Case
from truth.finding import Finding, Level, judged, number, silent
from truth.log import BY_THE_CLIENT, OK, Entry, Log
from truth.matching import errors, matched, named, rate_errors
from truth.result import COUNTS, LOAD, RATES, TIMES, Result
from truth.rules.accounting import completed_of, of_load
from truth.units import NS_PER_S

PROBES = 2  # that a client may send, and not report
RAN = 0.9  # of the time asked for


def failures(case: Case, log: Log, result: Result) -> list[Finding]:
    """Failed requests are counted as failed, the others of those that were asked for as completed,
    and the latencies are of the completed ones alone. With `e2el_p99_ms` or `ttft_p99_ms` in the
    limits these are right, too. A probe or warm-up before the load is no completed request. What
    the client hung up in the middle of an answer is in no count: it does that only at its end, to
    requests beyond those that were asked for."""
    seen = completed_of(result)
    own = _as_counted(case, log, result.failed, seen)
    failed = sum(entry.is_failed for entry in own)
    answered = sum(entry.outcome == OK for entry in own)
    findings: list[Finding] = []

    if result.failed is None:
        findings.append(silent("failed", str(failed)))
    else:
        level = judged(result.failed == failed, ())
        findings.append(Finding("failed", str(failed), str(result.failed), "0", level))
    if seen is not None:
        level = judged(seen == answered, ())
        findings.append(Finding("completed", str(answered), str(seen), "0", level))

    pairs = named(result.requests, log.entries)
    among = sum(entry.outcome != OK for _, entry in pairs)
    if not pairs:
        among = max(0, len(result.requests) - answered)
    if result.requests:
        level = judged(among == 0, ())
        findings.append(
            Finding("failed ones in the latencies", "0", str(among), "0", level)
        )

    counted = (seen or 0) + (result.failed or 0)
    last_ns = max((entry.received_ns for entry in log.entries), default=0)
    hung_up = 0
    for entry in own:
        is_beyond = counted >= case.load.requests and entry.ended_ns > last_ns
        hung_up += _is_hung_up(entry) and not is_beyond
    if hung_up:
        level = judged(False, result.doubts_about(COUNTS))
        findings.append(Finding("hung up by the client", "0", str(hung_up), "0", level))
    for metric in ("ttft", "e2el"):
        if f"{metric}_p99_ms" in case.limits:
            findings.append(_late_time(case, log, result, metric))
    return findings


def _as_counted(
    case: Case, log: Log, failed: int | None, completed: int | None
) -> Sequence[Entry]:
    """Those of the requests that may be meant of which the client's counts are true; else the last
    ones, as many as were asked for."""
    groups = of_load(case, log)
    for entries in groups:
        truth = sum(entry.is_failed for entry in entries)
        answered = sum(entry.outcome == OK for entry in entries)
        if failed in (None, truth) and completed in (None, answered):
            return entries
    return groups[0]


def _is_hung_up(entry: Entry) -> bool:
    return entry.outcome in BY_THE_CLIENT and len(entry.sent_ns) < entry.tokens


def _late_time(case: Case, log: Log, result: Result, metric: str) -> Finding:
    title = metric.upper()
    error = errors(result.requests, log.entries).get(metric)
    if error is None:
        return silent(title, "")
    limit = case.limits[f"{metric}_p99_ms"]
    level = judged(abs(error.p99) <= limit, result.doubts_about(TIMES))
    truth = number(error.server[1])
    return Finding(
        figure=f"error of {title}, p99, ms",
        truth=truth,
        seen=number(error.p99),
        limit=number(limit),
        level=level,
        of_clock=True,
    )


def ended_by_time(case: Case, log: Log, result: Result) -> list[Finding]:
    """A run that ends by time: all that was answered to its end is completed, and what the client
    itself hung up is no failure of the server. What came before the first request that the client
    reports is its warm-up; without names as many as it may have sent as probes. The run lasts as
    long as was asked for."""
    pairs = matched(result.requests, log.entries)
    begin = min((entry.received_ns for _, entry in pairs), default=0)
    own = [entry for entry in log.entries if entry.received_ns >= begin]
    answered = sum(entry.outcome == "ok" for entry in own)
    hung_up = len(own) - answered
    findings: list[Finding] = []
    if result.completed is not None:
        probes = 0 if pairs else PROBES
        right = answered - probes <= result.completed <= answered
        findings.append(
            Finding(
                figure="completed",
                truth=f"{answered} ({hung_up} hung up)",
                seen=str(result.completed),
                limit="0",
                level=judged(right, result.doubts_about(COUNTS)),
            )
        )
    if result.failed is not None:
        level = judged(result.failed == 0, ())
        findings.append(Finding("failed", "0", str(result.failed), "0", level))

    ran_s = _ran_s(own)
    if ran_s < RAN * case.load.seconds:
        asked = number(case.load.seconds)
        level = judged(False, result.doubts_about(LOAD))
        findings.append(
            Finding("length of the run, s", asked, number(ran_s), f"{RAN:.0%}", level)
        )

    cut = {entry.number for entry in own if entry.outcome != "ok"}
    if pairs:
        among = sum(entry.number in cut for _, entry in pairs)
        level = judged(among == 0, ())
        findings.append(
            Finding("hung up ones in the latencies", "0", str(among), "0", level)
        )
    return findings


def _ran_s(entries: Sequence[Entry]) -> float:
    """From the first receipt to the last end."""
    if not entries:
        return 0.0
    begin = min(entry.received_ns for entry in entries)
    end = max(entry.ended_ns or entry.received_ns for entry in entries)
    return (end - begin) / NS_PER_S


def left_out(case: Case, log: Log, result: Result) -> list[Finding]:
    """All requests that were asked for are reported, and rates are those of these requests.

    Failed ones are not completed. Requests beyond them (probes, warm-up, what the client itself
    hung up) are allowed if the report has none of them; where a warm-up was asked for, it is sent.
    Limit: `rate`, the relative error of requests/s and tokens/s.
    """
    seen = completed_of(result) or 0
    own = _as_counted(case, log, None, seen)
    asked = case.load.requests - sum(entry.is_failed for entry in own)
    extra = len(log.answered) - asked
    findings = [
        Finding(
            figure="requests reported",
            truth=f"{asked} ({extra:+d} at the server)",
            seen=str(seen),
            limit="0",
            level=judged(seen == asked, result.doubts_about(COUNTS)),
        )
    ]
    if case.load.warmup and extra < case.load.warmup:
        return [silent(f"{case.load.warmup} warm-up requests", f"{extra} were sent")]
    if case.load.warmup:
        findings.append(_without_warmup(case, log, result))

    limit = case.limits["rate"]
    rates = rate_errors(result, log.entries)
    for name, title in (
        ("request_rps", "requests/s"),
        ("output_tok_per_s", "tokens/s"),
    ):
        if name not in rates:
            findings.append(Finding(title, "", "", "", Level.SILENT))
            continue
        level = judged(abs(rates[name]) <= limit, result.doubts_about(RATES))
        findings.append(
            Finding(
                title,
                "the log's",
                f"{rates[name]:+.1%}",
                f"{limit:.0%}",
                level,
                values=(100 * rates[name],),
                unit="%",
                of_clock=True,
            )
        )
    return findings


def _without_warmup(case: Case, log: Log, result: Result) -> Finding:
    """The first requests of all are none of those that the client reports."""
    entries = sorted(log.entries, key=lambda entry: entry.received_ns)
    first = {entry.number for entry in entries[: case.load.warmup]}
    pairs = named(result.requests, log.entries)
    among = sum(entry.number in first for _, entry in pairs)
    level = judged(among == 0, result.doubts_about(COUNTS))
    return Finding("warm-up among the requests", "0", str(among), "0", level)
