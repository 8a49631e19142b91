"""A client's requests against the server's log: errors of each figure, rates, lost requests."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from truth.log import Entry
from truth.result import Result, Seen
from truth.units import NS_PER_MS, NS_PER_S, percentile

METRICS = ("ttft", "itl", "tpot", "e2el")
Pair = tuple[Seen, Entry]
Values = list[float]


@dataclass(frozen=True, slots=True)
class Error:
    """Percentiles in ms. `matched`: of the absolute differences, request by request (ITL: gap by
    gap), and `middle` of the signed ones; else the differences of the two distributions'
    percentiles. `client` and `server`: (p50, p99) of both samples. `compared`: requests with the
    figure on both sides."""

    matched: bool
    compared: int
    p50: float
    p99: float
    middle: float
    client: tuple[float, float]
    server: tuple[float, float]


def named(requests: Sequence[Seen], entries: Iterable[Entry]) -> list[Pair]:
    """Requests with their entries of the log; those that name none, or one that the log does not
    have, are left out."""
    log = list(entries)
    by_number = {entry.number: entry for entry in log}
    by_id = {entry.request_id: entry for entry in log if entry.request_id}

    pairs: list[Pair] = []
    for seen in requests:
        entry = None
        if seen.number is not None:
            entry = by_number.get(seen.number)
        elif seen.request_id:
            entry = by_id.get(seen.request_id)
        if entry is not None:
            pairs.append((seen, entry))
    return pairs


def matched(requests: Sequence[Seen], entries: Iterable[Entry]) -> list[Pair]:
    """Those of `named` that were answered with tokens."""
    return [pair for pair in named(requests, entries) if pair[1].sent_ns]


def own_entries(requests: Sequence[Seen], entries: Sequence[Entry]) -> list[Entry]:
    """The entries of the requests that the client reports.

    Where it cannot be said of each (an answer without text has no number), they are the last ones
    that were answered, as many: probes and warm-up come before. All, if it reports none.
    """
    pairs = matched(requests, entries)
    if pairs and len(pairs) == len(requests):
        return [entry for _, entry in pairs]
    answered = [entry for entry in entries if entry.outcome == "ok" and entry.sent_ns]
    answered.sort(key=lambda entry: entry.received_ns)
    return answered[-len(requests) :] if requests else answered


def true_values(entry: Entry, metric: str) -> Values:
    """A figure of a request by the server's log, ms: from the receipt of its last byte, to just
    before a token goes to the kernel. Empty where it is not defined."""
    sent = entry.sent_ns
    if not sent:
        return []
    if metric == "ttft":
        return [(sent[0] - entry.received_ns) / NS_PER_MS]
    if metric == "e2el":
        return [(sent[-1] - entry.received_ns) / NS_PER_MS]
    if metric == "itl":
        return [(later - earlier) / NS_PER_MS for earlier, later in pairwise(sent)]

    tokens = entry.output_tokens
    if tokens < 2:
        return []
    return [(sent[-1] - sent[0]) / NS_PER_MS / (tokens - 1)]


def client_values(seen: Seen, metric: str) -> Values:
    """The same figure as the client reports it; empty where it reports none."""
    if metric == "itl":
        return list(seen.itl_ms)
    value: float | None = getattr(seen, f"{metric}_ms")
    if value is None or math.isnan(value):
        return []
    return [value]


def errors(requests: Sequence[Seen], entries: Sequence[Entry]) -> dict[str, Error]:
    """Of each of `METRICS` that the client reports."""
    pairs = matched(requests, entries)
    answered = [entry for entry in entries if entry.outcome == "ok"]

    results: dict[str, Error] = {}
    for metric in METRICS:
        if pairs:
            client, server = _paired(pairs, metric)
        else:
            client = [client_values(seen, metric) for seen in requests]
            server = [true_values(entry, metric) for entry in answered]
        if any(client) and any(server):
            results[metric] = _error(client, server, bool(pairs))
    return results


def _paired(pairs: Sequence[Pair], metric: str) -> tuple[list[Values], list[Values]]:
    """Values of both sides, as many for each request. One is left out if the client has none, or
    gaps that are not those of the tokens."""
    client: list[Values] = []
    server: list[Values] = []
    for seen, entry in pairs:
        reported = client_values(seen, metric)
        truth = true_values(entry, metric)
        if len(reported) == len(truth):
            client.append(reported)
            server.append(truth)
    return client, server


def _error(client: Sequence[Values], server: Sequence[Values], paired: bool) -> Error:
    of_client = _ends(client)
    of_server = _ends(server)
    compared = sum(map(bool, client))
    if not paired:
        p50 = of_client[0] - of_server[0]
        p99 = of_client[1] - of_server[1]
        return Error(False, compared, p50, p99, p50, of_client, of_server)

    both = zip(chain(*client), chain(*server), strict=True)
    signed = [value - truth for value, truth in both]
    sizes = [abs(difference) for difference in signed]
    p50, p99 = _ends([sizes])
    middle = percentile(signed, 50)
    return Error(True, compared, p50, p99, middle, of_client, of_server)


def _ends(parts: Iterable[Values]) -> tuple[float, float]:
    ordered = sorted(chain(*parts))
    return percentile(ordered, 50), percentile(ordered, 99)


def rate_errors(result: Result, entries: Sequence[Entry]) -> dict[str, float]:
    """Relative errors of the reported rates; the server's run from its first receipt to its last
    token, over the matched requests."""
    own = own_entries(result.requests, entries)
    if not own:
        return {}

    begin = min(entry.received_ns for entry in own)
    end = max(entry.sent_ns[-1] for entry in own)
    seconds = (end - begin) / NS_PER_S
    if seconds <= 0:
        return {}

    tokens = sum(entry.output_tokens for entry in own)
    truth = {"request_rps": len(own) / seconds, "output_tok_per_s": tokens / seconds}
    known = [name for name in truth if name in result.reported]
    return {name: result.reported[name] / truth[name] - 1 for name in known}
