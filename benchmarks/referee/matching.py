"""The client's records against the server's log: errors of each figure, rates, lost requests, arrivals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.referee.clients.client import Result, Seen
from llama_load.units import NS_PER_S

MS = 1e6  # ns
METRICS = ("ttft", "itl", "tpot", "e2el")
COUNT_WINDOW_S = 1.0  # of the counts of arrivals


@dataclass(frozen=True, slots=True)
class Error:
    """Percentiles in ms. `matched`: of the absolute differences, request by request (ITL: gap by gap), and `middle` of the signed ones;
    else the differences of the two distributions' percentiles. `client` and `server`: (p50, p99) of both samples."""

    matched: bool
    count: int
    p50: float
    p99: float
    middle: float
    client: tuple[float, float]
    server: tuple[float, float]


def matched(requests: Sequence[Seen], log: Iterable[Mapping[str, Any]]) -> list[tuple[Seen, Mapping[str, Any]]]:
    """Requests with their entries of the log; those that name none, or one that the log does not have, are left out."""
    entries = list(log)
    by_number = {entry["number"]: entry for entry in entries}
    by_id = {entry["request_id"]: entry for entry in entries if entry["request_id"]}
    pairs = []
    for seen in requests:
        entry = by_number.get(seen.number) if seen.number is not None else by_id.get(seen.request_id)
        if entry is not None and entry["sent_mono_ns"]:
            pairs.append((seen, entry))
    return pairs


def true_ms(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a request by the server's log: from the receipt of its last byte, to just before a token goes to the kernel."""
    sent = np.array(entry["sent_mono_ns"], dtype=np.int64)
    received = entry["received_mono_ns"]
    tokens = len(sent)
    return {
        "ttft": (sent[0] - received) / MS,
        "itl": np.diff(sent) / MS,
        "tpot": (sent[-1] - sent[0]) / MS / (tokens - 1) if tokens > 1 else None,
        "e2el": (sent[-1] - received) / MS,
    }


def errors(requests: Sequence[Seen], log: Sequence[Mapping[str, Any]]) -> dict[str, Error]:
    """Of each of `METRICS` that the client reports."""
    pairs = [(seen, true_ms(entry)) for seen, entry in matched(requests, log)]
    results: dict[str, Error] = {}
    for name in METRICS:
        if pairs:
            samples = [_pair(seen, truth, name) for seen, truth in pairs]
        else:
            truths = [true_ms(entry) for entry in log if entry["outcome"] == "ok"]
            samples = [(np.ravel([value]), np.zeros(0)) for seen in requests if (value := _value(seen, name)) is not None]
            samples += [(np.zeros(0), np.ravel([truth[name]])) for truth in truths if truth[name] is not None]
        client, server = (np.concatenate([np.zeros(0), *(sample[side] for sample in samples)]) for side in (0, 1))
        if len(client) and len(server):
            results[name] = _error(client, server, bool(pairs))
    return results


def _value(seen: Seen, name: str) -> Any:
    value = getattr(seen, f"{name}_ms")
    return None if name == "itl" and not len(value) else value


def _pair(seen: Seen, truth: Mapping[str, Any], name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The client's values and the server's, as many; none if the client has none, or gaps that are not those of the tokens."""
    value = _value(seen, name)
    if value is None or truth[name] is None or np.size(value) != np.size(truth[name]):
        return np.zeros(0), np.zeros(0)
    return np.ravel(np.asarray(value, dtype=np.float64)), np.ravel(np.asarray(truth[name], dtype=np.float64))


def _error(client: NDArray[np.float64], server: NDArray[np.float64], paired: bool) -> Error:
    both = tuple((float(np.percentile(values, 50)), float(np.percentile(values, 99))) for values in (client, server))
    if paired:
        differences = client - server
        p50, p99 = map(float, np.percentile(np.abs(differences), (50, 99)))
        middle = float(np.percentile(differences, 50))
    else:
        p50, p99 = (both[0][place] - both[1][place] for place in (0, 1))
        middle = p50
    return Error(paired, len(client), p50, p99, middle, *both)


def rate_errors(result: Result, log: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Relative errors of the reported rates; the server's run from its first receipt to its last token, over the matched requests."""
    entries = [entry for _, entry in matched(result.requests, log)] or [entry for entry in log if entry["outcome"] == "ok"]
    if not entries:
        return {}
    begin = min(entry["received_mono_ns"] for entry in entries)
    seconds = (max(entry["sent_mono_ns"][-1] for entry in entries) - begin) / NS_PER_S
    truth = {
        "request_rps": len(entries) / seconds,
        "output_tok_per_s": sum(len(entry["sent_mono_ns"]) for entry in entries) / seconds,
    }
    return {name: result.reported[name] / rate - 1 for name, rate in truth.items() if name in result.reported}


def lost(asked: int, requests: Sequence[Seen], log: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Counts: requests that the client was to send, that the server answered, that the client reports as completed, and those that the
    client should have but has not: answered (up to the number asked for) and not reported, or reported and not in the log."""
    served = sum(entry["outcome"] == "ok" for entry in log)
    reported = len(requests)
    named = any(seen.number is not None or seen.request_id for seen in requests)
    invented = reported - len(matched(requests, log)) if named else 0
    return {"asked": asked, "served": served, "reported": reported, "lost": max(0, asked - reported), "invented": invented}


def arrivals(requests: Sequence[Seen], log: Sequence[Mapping[str, Any]], rate_rps: float) -> dict[str, float]:
    """The arrival process at the server, of the requests that the client reports: rate over the one asked for, minus 1; of the gaps the
    coefficient of variation (Poisson: 1, even: 0) and lag-1 autocorrelation (0); variance over mean of the counts per second
    (Poisson: 1, even: 0). Of n Poisson gaps the standard error of the coefficient is about 1/sqrt(n).
    """
    entries = [entry for _, entry in matched(requests, log)] or log
    received = np.sort([entry["received_mono_ns"] for entry in entries]) / NS_PER_S
    gaps = np.diff(received)
    counts = np.histogram(received, np.arange(received[0], received[-1], COUNT_WINDOW_S))[0] if len(received) > 1 else np.zeros(0)
    if len(gaps) < 3 or len(counts) < 2:
        return {}
    centred = gaps - gaps.mean()
    spread = float((centred**2).sum())
    return {
        "count": float(len(received)),
        "rate_error": float(1 / gaps.mean() / rate_rps - 1),
        "gap_cv": float(gaps.std() / gaps.mean()),
        "gap_autocorrelation": float((centred[:-1] * centred[1:]).sum() / spread) if spread else 0.0,
        "count_dispersion": float(counts.var() / counts.mean()),
    }
