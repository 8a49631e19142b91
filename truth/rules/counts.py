"""Rules of counts: tokens, and which event is the first of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from truth.cases import Case
from truth.finding import Finding, judged, number, silent
from truth.log import Entry, Log
from truth.matching import (
    Pair,
    client_values,
    errors,
    matched,
    own_entries,
    true_values,
)
from truth.result import COUNTS, TIMES, Result, Seen
from truth.server.shapes import IN_TURN
from truth.units import percentile

EARLY_MS = 2.0  # by which clocks and their conversions may differ
TOKENS_A_REQUEST = 0.25  # a client may have another time for each rate


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
    """No first token may come before it was sent; half of them come soon after it, and so does one
    of each form of answers. An event without text that is taken for a token is early, whatever the
    client's own delay."""
    by_form = _errors_of_ttft(case, log, result)
    if not by_form:
        return silent("TTFT", "")
    limit = case.limits["ttft_p50_ms"]
    least = min(min(errors_ms) for errors_ms in by_form)
    middle = percentile(list(chain(*by_form)), 50)
    middle = max(middle, *map(min, by_form))
    right = least >= -EARLY_MS and middle <= limit
    return Finding(
        figure="error of TTFT, least / p50, ms",
        truth=f"at least {number(-EARLY_MS)}",
        seen=f"{number(least)} / {number(middle)}",
        limit=number(limit),
        level=judged(right, result.doubts_about(TIMES)),
        of_clock=least >= -EARLY_MS,  # no neighbour makes it early
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
    return Finding(
        figure="TPOT, p50, ms",
        truth=number(truth),
        seen=number(error.client[0]),
        limit=f"{limit:.0%}",
        level=level,
        of_clock=True,
    )


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
