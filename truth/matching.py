"""A client's requests against the server's log: errors of each figure, rates, lost requests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

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
    percentiles. `client` and `server`: (p50, p99) of both samples."""

    matched: bool
    count: int
    p50: float
    p99: float
    middle: float
    client: tuple[float, float]
    server: tuple[float, float]


def matched(requests: Sequence[Seen], entries: Iterable[Entry]) -> list[Pair]:
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
        if entry is not None and entry.sent_ns:
            pairs.append((seen, entry))
    return pairs


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
    if value is None:
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
            client = _all_values(client_values(seen, metric) for seen in requests)
            server = _all_values(true_values(entry, metric) for entry in answered)
        if client and server:
            results[metric] = _error(client, server, bool(pairs))
    return results


def _paired(pairs: Sequence[Pair], metric: str) -> tuple[Values, Values]:
    """Values of both sides, as many. A request is left out if the client has none, or gaps that are
    not those of the tokens."""
    client: Values = []
    server: Values = []
    for seen, entry in pairs:
        reported = client_values(seen, metric)
        truth = true_values(entry, metric)
        if len(reported) == len(truth):
            client += reported
            server += truth
    return client, server


def _all_values(parts: Iterable[Values]) -> Values:
    values: Values = []
    for part in parts:
        values += part
    return values


def _error(client: Values, server: Values, paired: bool) -> Error:
    of_client = _ends(client)
    of_server = _ends(server)
    if not paired:
        p50 = of_client[0] - of_server[0]
        p99 = of_client[1] - of_server[1]
        return Error(False, len(client), p50, p99, p50, of_client, of_server)

    signed = [value - truth for value, truth in zip(client, server, strict=True)]
    sizes = [abs(difference) for difference in signed]
    p50, p99 = _ends(sizes)
    return Error(
        True, len(client), p50, p99, percentile(signed, 50), of_client, of_server
    )


def _ends(values: Values) -> tuple[float, float]:
    ordered = sorted(values)
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


def lost(
    asked: int, requests: Sequence[Seen], entries: Sequence[Entry]
) -> dict[str, int]:
    """Counts: requests that the client was to send, that the server answered, that the client
    reports as completed, and those that the client should have but has not: answered (up to the
    number asked for) and not reported, or reported and not in the log."""
    served = sum(entry.outcome == "ok" for entry in entries)
    reported = len(requests)
    invented = 0
    if any(seen.number is not None or seen.request_id for seen in requests):
        invented = reported - len(matched(requests, entries))
    return {
        "asked": asked,
        "served": served,
        "reported": reported,
        "lost": max(0, asked - reported),
        "invented": invented,
    }
