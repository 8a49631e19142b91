"""Clock synchronization: a worker's monotonic clock on the master's axis, at any time of the run.

The master sends a ping at `sent_ns`; the pong carries the worker's time `worker_ns` and arrives at
`received_ns`. offset = (sent_ns + received_ns) / 2 - worker_ns, uncertainty = (received_ns -
sent_ns) / 2. Of each `SPAN_NS` the shortest round trip is kept. Between two kept readings the
offset is interpolated, so the drift of the two clocks (up to 500 ppm while NTP corrects one) is
measured; after the last one it continues with the drift measured before. Source: Cristian's
algorithm (1989); the shortest of several round trips, as in NTP's clock filter.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from llama_load.ground.units import NS_PER_S

# The drift that is possible as long as it is not measured: Linux slews a clock by 500 ppm at most.
DRIFT = 500e-6
# Once measured, it still changes, with the temperature.
WANDER = 20e-6
# More than this between two readings is a jump: a machine was suspended in between.
MOST_DRIFT = 2 * DRIFT
# One reading is kept for each span. The drift is measured over the spans since the last jump,
# BASELINE at most.
SPAN_NS = 10 * NS_PER_S
BASELINE = 10
# When there are more readings, every other one of the older half is dropped: ten hours fit, the
# last hour in full.
MOST_KEPT = 512
# Fewer readings than this do not make a clock known, unless one has an uncertainty below NEAR_NS: a
# new process or a busy machine answers late at first, and then one way takes longer than the other.
ENOUGH = 5
NEAR_NS = 500_000
# AGREE round trips must be within ALIKE times the shortest: one alone may be wrong. After MOST
# readings any clock is known.
AGREE = 3
ALIKE = 1.5
MOST = 40


@dataclass(frozen=True, slots=True)
class Reading:
    """One exchange: the worker's clock, the offset (master's clock - worker's clock) and its
    uncertainty, all in ns."""

    worker_ns: int
    offset_ns: int
    uncertainty_ns: int

    def agrees(self, other: Reading) -> bool:
        """Whether both can be true without a jump of a clock in between."""
        apart_ns = abs(self.worker_ns - other.worker_ns)
        bounds_ns = self.uncertainty_ns + other.uncertainty_ns + apart_ns * MOST_DRIFT
        return abs(self.offset_ns - other.offset_ns) <= bounds_ns


@dataclass(slots=True)
class WorkerClock:
    """The exchanges with one worker. `worst_used_ns` is the largest uncertainty of any shift of a
    record."""

    worst_used_ns: int | None = None
    newest_ns: int = 0  # when the last exchange ended, on the master's clock
    _kept: list[Reading] = field(default_factory=list)
    _drift: tuple[float, float] = (0.0, DRIFT)
    _round_trips: list[int] = field(default_factory=list)  # the first ones

    def add(self, sent_ns: int, worker_ns: int, received_ns: int) -> None:
        """Add an exchange: ping sent and pong received on the master's clock, the worker's clock in
        between."""
        round_trip = received_ns - sent_ns
        if len(self._round_trips) < MOST:
            self._round_trips.append(round_trip)
        self.newest_ns = max(self.newest_ns, received_ns)
        reading = Reading(
            worker_ns, sent_ns + round_trip // 2 - worker_ns, -(-round_trip // 2)
        )
        kept = self._kept
        if kept and reading.agrees(kept[-1]):
            if (
                worker_ns <= kept[-1].worker_ns
                or reading.uncertainty_ns > self._after(worker_ns).uncertainty_ns
            ):
                return  # it adds nothing
            if (
                len(kept) > 1
                and kept[-1].agrees(kept[-2])
                and kept[-1].worker_ns - kept[-2].worker_ns < SPAN_NS
            ):
                kept.pop()  # of the same span
        kept.append(reading)
        if len(kept) > MOST_KEPT:
            half = len(kept) // 2
            kept[:half] = kept[:half:2]
        self._drift = self._measured_drift()

    @property
    def is_known(self) -> bool:
        """Whether records can be shifted by it: one round trip was short enough, or several agree
        on the shortest."""
        if not self._kept:
            return False
        trips = sorted(self._round_trips)
        if trips[0] // 2 < NEAR_NS or len(trips) >= MOST:
            return True
        return len(trips) >= ENOUGH and trips[AGREE - 1] <= ALIKE * trips[0]

    def at(self, worker_ns: int) -> Reading:
        """Offset and uncertainty at this time of the worker's clock. Only when `is_known`."""
        offsets, uncertainties = self._at(np.array([worker_ns], np.int64))
        return Reading(worker_ns, int(offsets[0]), int(uncertainties[0]))

    def now(self, master_ns: int) -> Reading:
        """The same at this time of the master's clock, not before the last reading."""
        return self._after(master_ns - self._kept[-1].offset_ns)

    def _after(self, worker_ns: int) -> Reading:
        last = self._kept[-1]
        drift, error = self._drift
        since_ns = max(0, worker_ns - last.worker_ns)
        return Reading(
            worker_ns,
            last.offset_ns + round(since_ns * drift),
            last.uncertainty_ns + round(since_ns * error),
        )

    def shifts_ns(
        self, started_ns: NDArray[np.int64], ended_ns: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """One offset for each record, whose latencies were measured by one clock: that in the
        middle between these instants."""
        offsets, uncertainties = self._at((started_ns + ended_ns) // 2)
        if len(offsets):
            drift_ns = abs(self._drift[0]) * (ended_ns - started_ns) / 2
            self.worst_used_ns = max(
                self.worst_used_ns or 0, int((uncertainties + drift_ns).max())
            )
        return offsets

    def _measured_drift(self) -> tuple[float, float]:
        """The drift after the last reading, and its uncertainty."""
        last = self._kept[-1]
        best = (0.0, DRIFT)
        for before in self._kept[-2 : -2 - BASELINE : -1]:
            if not last.agrees(before):
                break
            apart_ns = last.worker_ns - before.worker_ns
            error = (last.uncertainty_ns + before.uncertainty_ns) / apart_ns + WANDER
            if error < best[1]:
                best = (last.offset_ns - before.offset_ns) / apart_ns, error
        return best

    def _at(
        self, worker_ns: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        kept = self._kept
        last = self._kept[-1]
        # Relative to the last reading: float64 would round instants of a machine that has been up
        # for months.
        at = (worker_ns - last.worker_ns).astype(float)
        times = np.array(
            [reading.worker_ns - last.worker_ns for reading in kept], float
        )
        offsets = np.array(
            [reading.offset_ns - last.offset_ns for reading in kept], float
        )
        uncertainties = np.array([reading.uncertainty_ns for reading in kept], float)
        pairs = pairwise(kept)
        jumps = np.array(
            [0.0]
            + [
                0.0 if a.agrees(b) else float(abs(a.offset_ns - b.offset_ns))
                for a, b in pairs
            ]
        )
        drift, error = self._drift
        after = np.maximum(at, 0.0)
        before = np.maximum(times[0] - at, 0.0)
        between = np.minimum(np.searchsorted(times, at), len(times) - 1)
        # nobody knows when in between
        jumped = np.where((at > times[0]) & (at < 0), jumps[between], 0.0)
        offset = np.interp(at, times, offsets) + after * drift
        uncertainty = (
            np.interp(at, times, uncertainties)
            + after * error
            + before * DRIFT
            + jumped
        )
        return last.offset_ns + np.rint(offset).astype(np.int64), uncertainty
