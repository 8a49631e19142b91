"""Clock synchronization: the offset of a worker's monotonic clock from the master's, from the shortest round trip.

The master sends a ping at `sent_ns`; the pong carries the worker's time `worker_ns` and arrives at `received_ns`.
offset = (sent_ns + received_ns) / 2 - worker_ns, uncertainty = (received_ns - sent_ns) / 2.
Source: Cristian's algorithm (1989); the shortest of several round trips, as in NTP's clock filter.
"""

from __future__ import annotations

from dataclasses import dataclass, field

# Clocks of two computers drift apart by about 20 us/s: the uncertainty of a reading grows by that with its age.
DRIFT = 20e-6
# Fewer readings than this do not make a clock known, unless one has an uncertainty below NEAR_NS: a new process or a busy machine
# answers late at first, and then one way takes longer than the other.
ENOUGH = 5
NEAR_NS = 500_000
# AGREE round trips must be within ALIKE times the shortest, because a single short one may be wrong. After MOST readings the
# clock counts as known regardless.
AGREE = 3
ALIKE = 1.5
MOST = 40


@dataclass(frozen=True, slots=True)
class Reading:
    """One exchange: offset (master's clock - worker's clock), its uncertainty, and when it was on the master's clock, all in ns."""

    offset_ns: int
    uncertainty_ns: int
    at_ns: int = 0

    def aged(self, now_ns: int) -> Reading:
        """The same reading with its uncertainty at `now_ns`: + 20 us per second of age."""
        drift_ns = round(max(0, now_ns - self.at_ns) * DRIFT)
        return Reading(self.offset_ns, self.uncertainty_ns + drift_ns, max(now_ns, self.at_ns))


@dataclass(slots=True)
class WorkerClock:
    """The exchanges with one worker. `worst_used_ns` is the largest uncertainty of any reading that shifted records."""

    best: Reading | None = None  # the reading with the least uncertainty, aged to the latest one
    worst_used_ns: int | None = None
    _round_trips: list[int] = field(default_factory=list)  # the first ones

    def add(self, sent_ns: int, worker_ns: int, received_ns: int) -> None:
        """Add an exchange: ping sent and pong received on the master's clock, the worker's clock in between.

        If this reading contradicts the best one, a machine was suspended in between: the older reading is discarded.
        """
        round_trip = received_ns - sent_ns
        if len(self._round_trips) < MOST:
            self._round_trips.append(round_trip)
        reading = Reading(sent_ns + round_trip // 2 - worker_ns, -(-round_trip // 2), received_ns)
        older = self.best.aged(received_ns) if self.best is not None else reading
        jumped = abs(reading.offset_ns - older.offset_ns) > reading.uncertainty_ns + older.uncertainty_ns
        self.best = reading if jumped else min(reading, older, key=lambda each: each.uncertainty_ns)

    @property
    def is_known(self) -> bool:
        """Whether records can be shifted by it: one round trip was short enough, or several agree on the shortest."""
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
