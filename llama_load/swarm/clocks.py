"""One time axis: how far a worker's monotonic clock is from the master's, from the exchange with the shortest round trip.

The master notes its time, asks, the worker answers with its own, the master notes its time again. If the way there took as
long as the way back, the worker's clock read `worker_ns` at the master's middle; it cannot be off by more than half the
round trip, which is the uncertainty. (Cristian's algorithm, 1989; the shortest of several as in NTP's clock filter.)
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

# Clocks of computers drift apart by some 20 us a second: an exchange older than a few of these periods tells less than a fresh one.
KEPT = 12
# A process that has just started answers late: schedules wait for so many readings, or for one that is as good as this.
ENOUGH = 8
NEAR_NS = 500_000


@dataclass(frozen=True, slots=True)
class Reading:
    """One exchange: master's clock - worker's clock, and by how much that may be wrong, ns."""

    offset_ns: int
    uncertainty_ns: int


class WorkerClock:
    """The last exchanges with one worker."""

    def __init__(self) -> None:
        self._readings: deque[Reading] = deque(maxlen=KEPT)

    def add(self, asked_ns: int, worker_ns: int, answered_ns: int) -> None:
        """An exchange: asked and answered by the master's clock, in between the worker's."""
        round_trip = answered_ns - asked_ns
        self._readings.append(Reading(asked_ns + round_trip // 2 - worker_ns, -(-round_trip // 2)))

    @property
    def is_known(self) -> bool:
        """Whether instants can be told by it: it was asked often enough, or was near enough the first time."""
        best = self.best
        return best is not None and (len(self._readings) >= ENOUGH or best.uncertainty_ns < NEAR_NS)

    @property
    def best(self) -> Reading | None:
        """The reading with the least uncertainty; None before the first."""
        return min(self._readings, key=lambda reading: reading.uncertainty_ns, default=None)
