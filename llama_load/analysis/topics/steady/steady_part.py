"""The steady part of a run: after its warm-up and before the server changed, if there is such a
part."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.statistics.backlog import backlog
from llama_load.analysis.statistics.changes import find_change, is_confirmed, slices_of
from llama_load.analysis.statistics.equal_load import at_equal_load, mean_in_flight
from llama_load.analysis.statistics.statistics import known, median
from llama_load.analysis.statistics.trend import (
    Values,
    autocorrelation_time,
    mann_kendall,
    pettitt,
)

STEADY = "steady"
NONE = "none"
TOO_SHORT = "too short"

Instants = NDArray[np.int64]

# Buckets of equal numbers of requests: fewer show no trend, more add nothing.
FEWEST_BUCKETS = 10
MOST_BUCKETS = 40
# A bucket smaller than two rounds of all users shows who started together, not how fast the server
# is.
ROUNDS = 2
# Leading buckets this far from the median of the back half are warm-up: a share of it, or a number
# of MADs.
WARMUP_SHARE = 0.05
WARMUP_MADS = 3.0
# Smaller changes are no reason to leave out requests.
LEAST_CHANGE = 0.05
# How long a steady part must be: in p99 E2EL, and in autocorrelation times of TPOT.
LEAST_P99 = 5
LEAST_TIMES = 10


@dataclass(frozen=True, slots=True)
class SteadyPart:
    """The steady part of a run, or why there is none."""

    reason: str  # "steady", "none" (it was never steady) or "too short" (to judge, or to be of use)
    text: str = ""  # why there is none
    # the first start (in an open loop: schedule) of its requests
    begin_ns: int | None = None
    end_ns: int | None = None  # the last one; None without a steady part
    requests: int = 0  # in it
    warmup_share: float = 0.0  # of all requests, before it, 0 to 1
    shift_ns: int | None = None  # when the server changed, which ends the part

    @property
    def is_steady(self) -> bool:
        """Whether there is such a part."""
        return self.reason == STEADY

    def holds(self, instants_ns: Instants) -> NDArray[np.bool_]:
        """One bool per request, by its start (in an open loop by its schedule): whether it is in
        the part."""
        if self.begin_ns is None or self.end_ns is None:
            return np.zeros(len(instants_ns), dtype=np.bool_)
        return np.asarray((instants_ns >= self.begin_ns) & (instants_ns <= self.end_ns))


def steady_part(
    started_ns: Instants,
    ended_ns: Instants,
    tpot_ms: Values,
    *,
    scheduled_ns: Instants | None = None,
    concurrency: int | None = None,
) -> SteadyPart:
    """The steady part of these requests, in order of their start, or of `scheduled_ns` in an open
    loop.

    `tpot_ms` is NaN where a request has none (failed, cancelled, one token); without any, E2EL is
    used. `concurrency`: None for the mean number in flight.

    1. Open loop: a growing backlog (see `analysis.statistics.backlog`) means that there is none.
    TPOT is that
       at equal load (`analysis.statistics.equal_load`).
    2. Closed loop: requests that started before the first one ended met an idle server, and are
       warm-up.
    3. 10 to 40 buckets of equal numbers of requests, at least 2 x concurrency each. Leading buckets
       whose median TPOT is outside median ± max(5 %, 3 MAD) of the back half are warm-up, but for a
       whole half. Tails decide nothing: a part chosen by its tail has a better tail than the
       server.
    4. A trend of the buckets (Mann-Kendall with the variance of Hamed and Rao, 1 %; Theil-Sen
       change over 5 %) that fits better than a shift means that there is none.
    5. A change of over 5 % ends the part, or its warm-up: a shift (Pettitt, 1 %), or a part of the
       time that differs (`analysis.statistics.changes`).
    6. It must last 5 x p99 E2EL, and 10 autocorrelation times of TPOT.

    On queues with a constant server (benchmarks/steadiness.py) it is never "none", and the shifts
    are below 1 %.
    """
    at_ns = started_ns if scheduled_ns is None else scheduled_ns
    order = np.argsort(at_ns, kind="stable")
    at_ns = at_ns[order]
    started_ns = started_ns[order]
    ended_ns = ended_ns[order]
    values = tpot_ms[order]
    if not len(at_ns):
        return SteadyPart(TOO_SHORT, "no requests")

    if scheduled_ns is not None:
        grown = _growing(at_ns, ended_ns)
        if grown is not None:
            return grown

    e2el_ns = (ended_ns - started_ns).astype(np.float64)
    if np.isnan(values).all():
        values = e2el_ns
    first = int(np.searchsorted(at_ns, ended_ns.min()))
    if scheduled_ns is not None:
        first = 0
        in_flight = mean_in_flight(started_ns, ended_ns, started_ns, ended_ns)
        values = at_equal_load(values, in_flight)
    if concurrency is None:
        took_ns = max(1, int(ended_ns.max()) - int(at_ns[0]))
        concurrency = math.ceil(e2el_ns.sum() / took_ns)

    last = len(at_ns)
    size = ROUNDS * max(1, concurrency)
    shift_ns = None
    few = _too_few(last - first, size)
    if few is not None:
        return few

    first = _after_warmup(values, first, size)
    # each turn cuts some of it off; there are seldom more than two
    for _ in range(FEWEST_BUCKETS):
        few = _too_few(last - first, size)
        if few is not None:
            return replace(few, shift_ns=shift_ns)

        medians, edges = _medians(values, first, last, size)
        shift = pettitt(medians)
        trend = mann_kendall(medians)
        if (
            trend.is_significant
            and abs(trend.change) > LEAST_CHANGE
            and trend.misfit < shift.misfit
        ):
            grew = f"TPOT changed evenly by {trend.change:+.0%}"
            return SteadyPart(NONE, grew, shift_ns=shift_ns)

        if shift.is_significant and abs(shift.change) > LEAST_CHANGE:
            last = int(edges[shift.at])
            shift_ns = int(at_ns[last])
            continue

        part = slice(first, last)
        change = _differing(started_ns[part], ended_ns[part], values[part])
        if change is None:
            break

        begin = int(np.searchsorted(at_ns, change[0]))
        end = int(np.searchsorted(at_ns, change[1]))
        if begin <= first and end <= len(at_ns) // 2:
            first = end
        elif begin <= first:
            last = end
            shift_ns = change[1]
        else:
            last = begin
            shift_ns = change[0]

    text = _too_short(at_ns[first:last], e2el_ns[first:last], values[first:last])
    if text is not None:
        return SteadyPart(TOO_SHORT, text, shift_ns=shift_ns)

    return SteadyPart(
        STEADY,
        "",
        int(at_ns[first]),
        int(at_ns[last - 1]),
        last - first,
        first / len(at_ns),
        shift_ns,
    )


def _growing(scheduled_ns: Instants, ended_ns: Instants) -> SteadyPart | None:
    queue = backlog(scheduled_ns, ended_ns)
    if queue is None or queue.deficit <= queue.limit:
        return None
    return SteadyPart(
        NONE, f"the backlog grew by {queue.growth} of {queue.arrivals} arrivals"
    )


def _differing(
    started_ns: Instants, ended_ns: Instants, values: Values
) -> tuple[int, int] | None:
    """The part of the time of these requests in which their values differ by over 5 %."""
    rows = ~np.isnan(values)
    since = started_ns[rows]
    until = ended_ns[rows]
    values = values[rows]
    slices = slices_of(int(started_ns.min()), int(started_ns.max()) + 1, since, until)
    if slices is None:
        return None

    logs = np.log(np.maximum(values, 1e-3))
    levels = np.exp(slices.mean(logs, since, until))
    change = find_change(slices, levels)
    if (
        change is None
        or change.size <= 1 + LEAST_CHANGE
        or not is_confirmed(change, values, (since + until) // 2)
    ):
        return None
    return change.begin_ns, change.end_ns


def _too_few(requests: int, size: int) -> SteadyPart | None:
    if requests >= FEWEST_BUCKETS * size:
        return None
    return SteadyPart(
        TOO_SHORT,
        f"it has {max(0, requests)} requests, needed are {FEWEST_BUCKETS * size}",
    )


def _too_short(at_ns: Instants, e2el_ns: Values, values: Values) -> str | None:
    took_ns = float(at_ns[-1] - at_ns[0])
    p99_ns = float(np.percentile(e2el_ns, 99))
    if took_ns < LEAST_P99 * p99_ns:
        return f"it lasts less than {LEAST_P99} x the p99 of E2EL"
    values = known(values)
    if len(values) < LEAST_TIMES * autocorrelation_time(values):
        return f"it lasts less than {LEAST_TIMES} autocorrelation times of TPOT"
    return None


def _medians(
    values: Values, first: int, last: int, size: int
) -> tuple[Values, NDArray[np.int64]]:
    """The medians of buckets of equal numbers of requests, and the buckets' edges; buckets without
    a value are left out."""
    count = min(MOST_BUCKETS, (last - first) // size)
    edges = np.linspace(first, last, count + 1).astype(np.int64)
    medians = np.array(
        [median(values[begin:end]) for begin, end in pairwise(edges)], dtype=np.float64
    )
    has_values = ~np.isnan(medians)
    return medians[has_values], edges[np.append(has_values, True)]


def _after_warmup(values: Values, first: int, size: int) -> int:
    """The first request after the leading buckets that differ from the back half. Where a whole
    half differs that is a change of the server, and no warm-up."""
    medians, edges = _medians(values, first, len(values), size)
    back = medians[len(medians) // 2 :]
    level = float(np.median(back))
    deviation = float(np.median(np.abs(back - level)))
    apart = max(WARMUP_SHARE * level, WARMUP_MADS * deviation)

    front = medians[: len(medians) // 2]
    inside = np.flatnonzero(np.abs(front - level) <= apart)
    if not len(inside):
        return first
    return int(edges[inside[0]])
