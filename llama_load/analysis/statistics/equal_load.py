"""Latencies at equal load: in an open loop a latency is long where many requests are in flight, on
a server that stays the same."""

from __future__ import annotations

import numpy as np

from llama_load.analysis.statistics.slices import Instants, Values

# Groups of requests that met about the same number of others: at most this many, of at least this
# many requests.
MOST_GROUPS = 40
REQUESTS_A_GROUP = 10


def mean_in_flight(
    started_ns: Instants, ended_ns: Instants, since_ns: Instants, until_ns: Instants
) -> Values:
    """How many requests were in flight from `since_ns` to `until_ns` on average, one value per
    pair."""
    origin = int(started_ns.min(initial=0))
    instants = np.concatenate((started_ns, ended_ns))
    order = np.argsort(instants, kind="stable")
    at = (instants[order] - origin).astype(np.float64)
    count = np.cumsum(np.repeat((1.0, -1.0), len(started_ns))[order])
    pieces = count[:-1] * np.diff(at)
    area = np.concatenate(([0.0], np.cumsum(pieces)))

    since = (since_ns - origin).astype(np.float64)
    until = (until_ns - origin).astype(np.float64)
    grown = np.interp(until, at, area) - np.interp(since, at, area)
    in_flight = grown / np.maximum(until - since, 1.0)
    return np.asarray(np.round(in_flight, 2))


def at_equal_load(values: Values, load: Values) -> Values:
    """The values (NaN: none), divided by the mean of those with about the same `load`, times the
    mean of all.

    Means of logarithms, in at most 40 groups of at least 10 requests by quantiles of the load.
    Those above the last quantile are NaN: their loads differ too much. What remains is the server.
    Where the load is always the same, the values stay as they are.
    """
    known = values > 0
    groups = min(MOST_GROUPS, int(known.sum()) // REQUESTS_A_GROUP)
    if groups < 2:
        return np.full(len(values), np.nan)

    shares = np.linspace(0, 1, groups + 1)[1:-1]
    edges = np.unique(np.quantile(load[known], shares))
    group = np.searchsorted(edges, load, side="left")
    logs = np.log(np.where(known, values, 1.0))
    sums = np.bincount(group[known], logs[known], len(edges) + 1)
    counts = np.bincount(group[known], minlength=len(edges) + 1)
    equal = np.exp(
        logs - (sums / np.maximum(counts, 1))[group] + float(logs[known].mean())
    )
    return np.where(known & (group < len(edges)), equal, np.nan)
