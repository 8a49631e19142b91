"""Rules of counts: tokens, requests, failures."""

from __future__ import annotations

from collections.abc import Sequence

from truth.cases import Case
from truth.finding import Finding, Level, judged, number, silent
from truth.log import BY_THE_CLIENT, OK, Entry, Log
from truth.matching import (
    Pair,
    client_values,
    errors,
    matched,
    named,
    own_entries,
    rate_errors,
    true_values,
)
from truth.result import COUNTS, LOAD, RATES, TIMES, Result, Seen
from truth.rules.accounting import completed_of, of_load
from truth.server.shapes import IN_TURN
from truth.units import NS_PER_S, percentile

EARLY_MS = 2.0  # by which clocks and their conversions may differ
TOKENS_A_REQUEST = 0.05  # rates are rounded
PROBES = 2  # that a client may send, and not report
RAN = 0.9  # of the time asked for


def counts(case: Case, log: Log, result: Result) -> list[Finding]:
    """Output and prompt tokens as the server sent and received them, and which event is the first
    token.

    Limits: `tokens`, the relative error of the total; where the case has them `ttft_p50_ms`, and
    `tpot`, the relative error of the median. Rates that the client reports have as many tokens a
    request as were sent.
    """
    own = own_entries(result.requests, log.entries)
    truth = sum(entry.output_tokens for entry in own)
    limit = case.limits["tokens"]
    findings = [_total("output tokens", truth, result.output_tokens, limit, result)]
    if "input" in case.limits:
        prompts = sum(entry.prompt_tokens for entry in own)
        seen = result.input_tokens
        findings.append(
            _total("prompt tokens", prompts, seen, case.limits["input"], result)
        )
    if "ttft_p50_ms" in case.limits:
        findings.append(_first_token(case, log, result))
    if "tpot" in case.limits:
        findings.append(_time_per_token(case, log, result))
    findings += _tokens_a_request(own, result)
    if case.load.choices > 1:
        sent = {entry.choices for entry in own}
        if sent != {case.load.choices}:
            return [silent(f"n = {case.load.choices}", "not asked for")]
    return findings


def _total(
    figure: str, truth: int, seen: int | None, limit: float, result: Result
) -> Finding:
    if seen is None:
        return silent(figure, str(truth))
    right = abs(seen - truth) <= limit * truth
    level = judged(right, result.doubts_about(COUNTS))
    return Finding(figure, str(truth), str(seen), f"{limit:.0%}", level)


def _first_token(case: Case, log: Log, result: Result) -> Finding:
    """No first token may come before it was sent, and half of them come soon after it, of each form
    of answers. An event without text that is taken for a token is early, whatever the client's own
    delay."""
    by_form = _errors_of_ttft(case, log, result)
    if not by_form:
        return silent("TTFT", "")
    limit = case.limits["ttft_p50_ms"]
    least = min(min(errors_ms) for errors_ms in by_form)
    middle = max(percentile(errors_ms, 50) for errors_ms in by_form)
    right = least >= -EARLY_MS and middle <= limit
    return Finding(
        figure="error of TTFT, least / p50, ms",
        truth=f"at least {number(-EARLY_MS)}",
        seen=f"{number(least)} / {number(middle)}",
        limit=number(limit),
        level=judged(right, result.doubts_about(TIMES)),
    )


def _errors_of_ttft(case: Case, log: Log, result: Result) -> list[list[float]]:
    """Of each form of answers. Those of requests without a name are compared with the others of the
    log, the shortest with the shortest."""
    rows = [seen for seen in result.requests if client_values(seen, "ttft")]
    pairs = matched(rows, log.entries)
    forms = len(IN_TURN) if case.server.shape == "in_turn" else 1
    by_form: dict[int, list[float]] = {}
    for seen, entry in pairs:
        error = client_values(seen, "ttft")[0] - true_values(entry, "ttft")[0]
        by_form.setdefault(entry.number % forms, []).append(error)
    return [*by_form.values(), *_errors_without_names(rows, pairs, log)]


def _errors_without_names(
    rows: Sequence[Seen], pairs: Sequence[Pair], log: Log
) -> list[list[float]]:
    """Of the requests that are in no pair, if there are any: a list with those of all."""
    seen_named = {id(seen) for seen, _ in pairs}
    numbers = {entry.number for _, entry in pairs}
    unnamed = [seen for seen in rows if id(seen) not in seen_named]
    others = [entry for entry in log.entries if entry.number not in numbers]
    seen_ms = sorted(client_values(seen, "ttft")[0] for seen in unnamed)
    own = own_entries(unnamed, others)
    true_ms = sorted(true_values(entry, "ttft")[0] for entry in own)
    errors_ms = [a - b for a, b in zip(seen_ms, true_ms, strict=False)]
    return [errors_ms] if errors_ms else []


def _time_per_token(case: Case, log: Log, result: Result) -> Finding:
    """By tokens, not by events."""
    error = errors(result.requests, log.entries).get("tpot")
    if error is None:
        return silent("TPOT", "")
    truth = error.server[0]
    limit = case.limits["tpot"]
    right = abs(error.client[0] - truth) <= limit * truth
    level = judged(right, result.doubts_about(TIMES))
    seen = number(error.client[0])
    return Finding("TPOT, p50, ms", number(truth), seen, f"{limit:.0%}", level)


def _tokens_a_request(own: Sequence[Entry], result: Result) -> list[Finding]:
    """Of the client's own rates, which has nothing to do with the time that they are of."""
    requests = result.reported.get("request_rps")
    tokens = result.reported.get("output_tok_per_s")
    if not requests or tokens is None or not own:
        return []
    truth = sum(entry.output_tokens for entry in own) / len(own)
    seen = tokens / requests
    right = abs(seen - truth) <= TOKENS_A_REQUEST * truth
    level = judged(right, result.doubts_about(COUNTS))
    limit = f"{TOKENS_A_REQUEST:.0%}"
    return [Finding("tokens/s a request/s", number(truth), number(seen), limit, level)]


def failures(case: Case, log: Log, result: Result) -> list[Finding]:
    """Failed requests are counted as failed, the others of those that were asked for as completed,
    and the latencies are of the completed ones alone. With `e2el_p99_ms` or `ttft_p99_ms` in the
    limits these are right, too. A probe or warm-up before the load is no completed request. What
    the client hung up in the middle of an answer is in no count, and so it must not do that."""
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

    hung_up = sum(_is_hung_up(entry) for entry in own)
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
        f"error of {title}, p99, ms", truth, number(error.p99), number(limit), level
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
