"""Intervals of many requests on one server: how much of another interval they cover, and who shares
it."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

Instants = NDArray[np.int64]
Durations = NDArray[np.float64]


class Intervals:
    """A set of intervals [start, end), in ns; those without a length are left out.

    With k(t) of them open at t, both methods are integrals over other intervals, found in two
    lookups of a cumulative sum: the time and memory do not depend on how many of the set overlap.
    """

    def __init__(self, starts: Instants, ends: Instants) -> None:
        real = ends > starts
        starts = starts[real]
        ends = ends[real]
        self._base = int(starts.min()) if len(starts) else 0
        instants = np.concatenate((starts, ends))
        steps = np.repeat((1, -1), len(starts))
        order = np.argsort(instants, kind="stable")
        # Relative to the first start, float64 is exact for 104 days.
        self._at = (instants[order] - self._base).astype(np.float64)
        open_now = np.cumsum(steps[order])[:-1]
        lasted = np.diff(self._at)
        covered = np.concatenate(
            ([0.0], np.cumsum(np.where(open_now > 0, lasted, 0.0)))
        )
        # Where it bends: the ends of the union. On a busy server prefills overlap for hours;
        # looking up a million gaps in these few instants takes a quarter of the time.
        bends = (
            np.flatnonzero(np.diff(open_now > 0, prepend=False, append=False))
            if len(open_now)
            else np.arange(len(self._at))
        )
        self._bends_at = self._at[bends]
        self._covered = covered[bends]
        self._shared = np.concatenate(
            (
                [0.0],
                np.cumsum(
                    np.where(open_now > 0, lasted / np.maximum(open_now, 1), 0.0)
                ),
            )
        )

    def covered(self, begin: Instants, end: Instants) -> Durations:
        """For each interval [begin, end), ns of it within any interval of the set: the integral of
        1 where k(t) > 0."""
        return self.covered_until(end) - self.covered_until(begin)

    def covered_until(self, instants: Instants) -> Durations:
        """For each instant, ns before it within any interval of the set."""
        return self._until(self._bends_at, self._covered, instants)

    def share(self, begin: Instants, end: Instants) -> Durations:
        """For each interval [begin, end), its fair share, ns: the integral of 1 / k(t). Two of the
        set that are open at the same time for 10 ms have 5 ms each."""
        return self._until(self._at, self._shared, end) - self._until(
            self._at, self._shared, begin
        )

    def _until(self, at: Durations, summed: Durations, instants: Instants) -> Durations:
        if not len(at):
            return np.zeros(len(instants))
        return np.asarray(
            np.interp((instants - self._base).astype(np.float64), at, summed)
        )


def slot_grants(arrived: Instants, left: Instants, slots: int) -> Instants:
    """When each request got a slot, ns, if slots go to waiting requests in the order of their
    arrival.

    arrived + 0 where a slot was free, else when one became free. Two slots, arrivals at 0, 1, 2,
    the first leaving at 5: 0, 1, 5.
    """
    grants = arrived.copy()
    ends: list[int] = []
    for row in np.argsort(arrived, kind="stable").tolist():
        end = int(left[row])
        if len(ends) < slots:
            heapq.heappush(ends, end)
            continue
        grants[row] = max(int(arrived[row]), ends[0])
        heapq.heapreplace(ends, max(end, int(grants[row])))
    return grants


def queue_grants(arrived: Instants, took: Instants, slots: int) -> Instants:
    """When each request would have got a slot, ns, if each kept its slot for as long as it `took`,
    and slots go to waiting requests in the order of their arrival.

    Two slots, arrivals at 0, 1, 2, that take 5 each: 0, 1, 5.
    """
    grants = arrived.copy()
    ends: list[int] = []
    for row in np.argsort(arrived, kind="stable").tolist():
        if len(ends) == slots:
            grants[row] = max(int(arrived[row]), heapq.heappop(ends))
        heapq.heappush(ends, int(grants[row]) + int(took[row]))
    return grants
