"""The backlog of an open loop: whether requests arrive faster than the server completes them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.statistics.trend import rank_sum_z

Instants = NDArray[np.int64]

# Windows for the variance of the growth.
WINDOWS = 16
# A growth of this many standard deviations is no chance; a server at exactly 100 % load passes it
# in about 1 of 100 runs.
SURELY = 1.645  # the standard normal quantile of 95 %
Z_GROWTH = 2.6
# Fewer arrivals show nothing.
FEWEST = 32
# Times in the system that grow by so many standard errors grow by no chance.
Z_LONGER = 2.6


@dataclass(frozen=True, slots=True)
class Backlog:
    """Requests that were scheduled and not completed, from `since_ns` to `until_ns` (the last
    arrival)."""

    since_ns: int
    until_ns: int
    before: int  # at the begin
    after: int  # at the end
    arrivals: int  # scheduled between these instants
    completions: int  # completed between them
    chance: float  # by how many requests chance makes a backlog grow at most

    @property
    def growth(self) -> int:
        """Arrivals - completions."""
        return self.after - self.before

    @property
    def deficit(self) -> float:
        """The share of the arrivals that the server fell behind: growth / arrivals, at least 0. 100
        arrive, 80 complete: 0.2."""
        return max(0.0, self.growth / self.arrivals) if self.arrivals else 0.0

    @property
    def limit(self) -> float:
        """The largest deficit that chance explains."""
        return self.chance / self.arrivals if self.arrivals else math.inf

    @property
    def detects(self) -> float:
        """The detection limit: the deficit of an overloaded server that would have been called too
        high with 95 %.

        Its growth scatters by sqrt(2 n) with Poisson arrivals and exponential services, more than
        that of a server with time to spare, so (2.6 + 1.64) sqrt(2 n) + 2 requests. 1000 arrivals:
        0.19; simulated queues at 125 % of their capacity (0.2) are called out in 99 of 100 runs
        (benchmarks/verdict_rates.md).
        """
        if not self.arrivals:
            return math.inf
        return ((Z_GROWTH + SURELY) * math.sqrt(2 * self.arrivals) + 2) / self.arrivals


def backlog(
    scheduled_ns: Instants, ended_ns: Instants, *, unsent: int = 0
) -> Backlog | None:
    """The growth of the backlog from when the first requests had been answered to the last arrival;
    None: too few arrivals, or too short a run.

    It counts from twice the 90th percentile of the first tenth's time in the system, at most from
    half of the time: a run starts on an idle server, and until then the requests in flight grow at
    any rate. Where half of the time is not enough for that, they may grow to the end; a backlog is
    then only what makes later requests take longer. The standard deviation of the growth is
    estimated from 16 windows of equal time, sqrt(16) s with s the standard deviation of (arrivals -
    completions) of a window, because neighbours in a queue are correlated; chance is 2.6 of them
    and 2 requests. `unsent`: arrivals before the end that were never sent.

    At exactly 100 % load a backlog grows like the root of the time; it is then not called too high.
    Source: D. Iglehart, W. Whitt, "Multiple channel queues in heavy traffic", 1970.
    """
    n = len(scheduled_ns)
    if n < FEWEST:
        return None
    begun = int(scheduled_ns.min())
    until = int(scheduled_ns.max())
    order = np.argsort(scheduled_ns, kind="stable")
    in_system_ns = (ended_ns - scheduled_ns)[order]
    until_answered_ns = 2 * float(np.percentile(in_system_ns[: max(10, n // 10)], 90))
    half_ns = (until - begun) / 2
    if until_answered_ns > half_ns and not _take_longer(in_system_ns):
        return None

    since = begun + round(min(until_answered_ns, half_ns))
    edges = np.linspace(since, until, WINDOWS + 1)
    arrived = np.searchsorted(scheduled_ns[order], edges, side="right")
    completed = np.searchsorted(np.sort(ended_ns), edges, side="right")
    steps = np.diff(arrived - completed)
    return Backlog(
        since_ns=since,
        until_ns=until,
        before=int(arrived[0] - completed[0]),
        after=int(arrived[-1] - completed[-1]) + unsent,
        arrivals=int(arrived[-1] - arrived[0]) + unsent,
        completions=int(completed[-1] - completed[0]),
        chance=Z_GROWTH * math.sqrt(WINDOWS) * float(np.std(steps, ddof=1)) + 2,
    )


def _take_longer(in_system_ns: Instants) -> bool:
    """Whether the last third of the arrivals were longer in the system than the first."""
    third = len(in_system_ns) // 3
    first = in_system_ns[:third].astype(np.float64)
    last = in_system_ns[-third:].astype(np.float64)
    return rank_sum_z(last, first) > Z_LONGER
