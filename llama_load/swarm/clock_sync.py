"""One time axis: how far a worker's monotonic clock is from the master's, from the exchange with the shortest round trip.

The master notes its time, asks, the worker answers with its own, the master notes its time again. If the way there took as
long as the way back, the worker's clock read `worker_ns` at the master's middle; it cannot be off by more than half the
round trip, which is the uncertainty. (Cristian's algorithm, 1989; the shortest of several as in NTP's clock filter.)
"""

from __future__ import annotations

from dataclasses import dataclass, field

# Clocks of computers drift apart by some 20 us a second: a reading is worth that much less with every second of its age.
DRIFT = 20e-6
# Without having been asked so often no clock is known, unless a reading is as good as NEAR_NS: a process that has just started,
# or a machine that is busy, answers late at first, and one way is longer than the other.
ENOUGH = 5
NEAR_NS = 500_000
# Nor is one known whose best reading stands alone: the way is as short as two others have found it to be, give or take a half.
# After so many readings it is taken as it is.
AGREE = 3
ALIKE = 1.5
MOST = 40


@dataclass(frozen=True, slots=True)
class Reading:
    """One exchange: master's clock - worker's clock, by how much that may be wrong, and when that was by the master's clock, ns."""

    offset_ns: int
    uncertainty_ns: int
    at_ns: int = 0

    def aged(self, now_ns: int) -> Reading:
        """The same reading as it is worth at `now_ns`."""
        drift_ns = round(max(0, now_ns - self.at_ns) * DRIFT)
        return Reading(self.offset_ns, self.uncertainty_ns + drift_ns, max(now_ns, self.at_ns))


@dataclass(slots=True)
class WorkerClock:
    """The exchanges with one worker. `worst_used_ns` is the largest uncertainty of any reading that instants were shifted by."""

    best: Reading | None = None  # the reading with the least uncertainty, as it was worth at the last one; None before the first
    worst_used_ns: int | None = None
    _round_trips: list[int] = field(default_factory=list)  # the first ones

    def add(self, asked_ns: int, worker_ns: int, answered_ns: int) -> None:
        """An exchange: asked and answered by the master's clock, in between the worker's. Where it and the best so far cannot both
        be right, one of the machines was suspended in between: the older one is of no more use."""
        round_trip = answered_ns - asked_ns
        if len(self._round_trips) < MOST:
            self._round_trips.append(round_trip)
        reading = Reading(asked_ns + round_trip // 2 - worker_ns, -(-round_trip // 2), answered_ns)
        older = self.best.aged(answered_ns) if self.best is not None else reading
        jumped = abs(reading.offset_ns - older.offset_ns) > reading.uncertainty_ns + older.uncertainty_ns
        self.best = reading if jumped else min(reading, older, key=lambda each: each.uncertainty_ns)

    @property
    def is_known(self) -> bool:
        """Whether instants can be shifted by it: one reading was near enough, or several agree on how short the way is."""
        if self.best is None:
            return False
        found = sorted(self._round_trips)
        if found[0] // 2 < NEAR_NS or len(found) >= MOST:
            return True
        return len(found) >= ENOUGH and found[AGREE - 1] <= ALIKE * found[0]

    def use(self) -> Reading:
        """The reading to shift a worker's records by. Only when `is_known`."""
        assert self.best is not None
        self.worst_used_ns = max(self.worst_used_ns or 0, self.best.uncertainty_ns)
        return self.best
