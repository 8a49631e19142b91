"""Rules of counts: tokens, requests, failures."""

from __future__ import annotations

from truth.cases import Case
from truth.finding import Finding, Level, judged, number, silent
from truth.log import Log
from truth.matching import errors, matched, own_entries, rate_errors, true_values
from truth.result import COUNTS, RATES, TIMES, Result
from truth.units import percentile

EARLY_MS = 2.0  # by which clocks and their conversions may differ


def counts(case: Case, log: Log, result: Result) -> list[Finding]:
    """Output and prompt tokens as the server sent and received them, and which event is the first
    token.

    Limits: `tokens`, the relative error of the total; `ttft_p50_ms`, where the case has it.
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
    """No first token may come before it was sent, and half of them come soon after it. An event
    without text that is taken for a token is early, whatever the client's own delay."""
    errors_ms = _errors_of_ttft(log, result)
    if not errors_ms:
        return silent("TTFT", "")
    limit = case.limits["ttft_p50_ms"]
    least = min(errors_ms)
    middle = percentile(errors_ms, 50)
    right = least >= -EARLY_MS and middle <= limit
    return Finding(
        figure="error of TTFT, least / p50, ms",
        truth=f"at least {number(-EARLY_MS)}",
        seen=f"{number(least)} / {number(middle)}",
        limit=number(limit),
        level=judged(right, result.doubts_about(TIMES)),
    )


def _errors_of_ttft(log: Log, result: Result) -> list[float]:
    errors_ms: list[float] = []
    for seen, entry in matched(result.requests, log.entries):
        if seen.ttft_ms is not None:
            errors_ms.append(seen.ttft_ms - true_values(entry, "ttft")[0])
    return errors_ms


def failures(case: Case, log: Log, result: Result) -> list[Finding]:
    """Failed requests are counted as failed, the others of those that were asked for as completed,
    and the latencies are of the completed ones alone. With `e2el_p99_ms` in the limits, E2EL is
    right, too. A probe or warm-up before the load is no completed request, and what the client
    itself hung up is no failed one."""
    failed = len(log.failed)
    answered = len(log.answered)
    findings: list[Finding] = []

    if result.failed is None:
        findings.append(silent("failed", str(failed)))
    else:
        level = judged(result.failed == failed, ())
        findings.append(Finding("failed", str(failed), str(result.failed), "0", level))
    if result.completed is not None:
        rest = min(answered, case.load.requests - failed)
        right = result.completed in (answered, rest)
        wanted = answered if result.completed == answered else rest
        findings.append(
            Finding(
                "completed", str(wanted), str(result.completed), "0", judged(right, ())
            )
        )

    broken = {entry.number for entry in log.entries if entry.outcome != "ok"}
    pairs = matched(result.requests, log.entries)
    among = sum(entry.number in broken for _, entry in pairs)
    if pairs:
        level = judged(among == 0, ())
        findings.append(
            Finding("failed ones in the latencies", "0", str(among), "0", level)
        )
    if "e2el_p99_ms" in case.limits:
        findings.append(_end_to_end(case, log, result))
    return findings


def _end_to_end(case: Case, log: Log, result: Result) -> Finding:
    error = errors(result.requests, log.entries).get("e2el")
    if error is None:
        return silent("E2EL", "")
    limit = case.limits["e2el_p99_ms"]
    level = judged(abs(error.p99) <= limit, result.doubts_about(TIMES))
    truth = number(error.server[1])
    return Finding(
        "error of E2EL, p99, ms", truth, number(error.p99), number(limit), level
    )


def ended_by_time(case: Case, log: Log, result: Result) -> list[Finding]:
    """A run that ends by time: all that was answered to its end is completed, and what the client
    itself hung up is no failure of the server. What came before the first request that the client
    reports is its warm-up."""
    del case
    pairs = matched(result.requests, log.entries)
    begin = min((entry.received_ns for _, entry in pairs), default=0)
    own = [entry for entry in log.entries if entry.received_ns >= begin]
    answered = sum(entry.outcome == "ok" for entry in own)
    hung_up = len(own) - answered
    findings: list[Finding] = []
    if result.completed is not None:
        right = result.completed == answered
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

    cut = {entry.number for entry in own if entry.outcome != "ok"}
    if pairs:
        among = sum(entry.number in cut for _, entry in pairs)
        level = judged(among == 0, ())
        findings.append(
            Finding("hung up ones in the latencies", "0", str(among), "0", level)
        )
    return findings


def left_out(case: Case, log: Log, result: Result) -> list[Finding]:
    """All requests that were asked for are reported, and rates are those of these requests.

    Failed ones are not completed. Requests beyond them (probes, warm-up, what the client itself
    hung up) are allowed if the report has none of them; where a warm-up was asked for, it is sent.
    Limit: `rate`, the relative error of requests/s and tokens/s.
    """
    asked = case.load.requests - len(log.failed)
    seen = result.completed if result.completed is not None else len(result.requests)
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
