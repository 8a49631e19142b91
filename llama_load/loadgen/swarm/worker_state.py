"""What the master of a swarm knows of a worker."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from llama_load.ground.units import NS_PER_S
from llama_load.loadgen.dispatch.leases import Key
from llama_load.loadgen.swarm.clock_sync import WorkerClock
from llama_load.loadgen.swarm.numbers_seen import NumbersSeen
from llama_load.run_folder.observed.worker_health import WorkerHealth

# How old the newest reading of a worker's clock may be for its records to be dated.
CLOCK_KNOWN_FOR_NS = 3 * NS_PER_S


def _now_ns() -> int:
    return time.monotonic_ns()


@dataclass(slots=True)
class WorkerState:
    """A worker in this run: its clock, the requests that it has begun, the batches that have come
    from it, whether it is there."""

    clock: WorkerClock = field(default_factory=WorkerClock)
    started: set[Key] = field(default_factory=set)
    received: NumbersSeen = field(default_factory=NumbersSeen)
    # batches that wait for the next pong
    early: list[tuple[int, bytes]] = field(default_factory=list)
    sent_batches: int | None = None  # in all; None: it has not sent its last message
    # requests that it has begun and that are in no batch, from that
    open: set[Key] = field(default_factory=set)
    # it sends no more batches, also those of that number that have not come
    gave_up: bool = False
    own_health: WorkerHealth | None = None  # from that
    queued: int = 0  # its batches that are being stored, or wait for it
    lost: bool = False
    left: bool = False  # it has delivered everything, or cannot take part
    pinged_s: float = 0.0
    owes_pong: bool = False
    heard_ns: int = field(default_factory=_now_ns)

    @property
    def is_fresh(self) -> bool:
        """Whether to ping it right after its last pong: nothing can be leased to it before its
        clock is known.

        Only one ping is outstanding: a stalled worker would answer several at once, and these would
        agree on a wrong clock.
        """
        return not (self.clock.is_known or self.owes_pong or self.lost or self.left)

    @property
    def is_flushed(self) -> bool:
        """Whether all its records are stored, and its requests have ended with them."""
        if self.left:
            return True
        return (
            self.sent_batches is not None
            and len(self.received) >= self.sent_batches
            and not self.queued
        )

    @property
    def is_drained(self) -> bool:
        """Whether nothing more will come from it."""
        return self.is_flushed or self.lost or (self.gave_up and not self.queued)

    @property
    def can_date_records(self) -> bool:
        """Whether its clock is known on both sides of the time when its newest records were made. A
        worker whose last pong is older may have been cut off: its records wait for the next one."""
        return (
            self.clock.is_known
            and time.monotonic_ns() - self.clock.newest_ns < CLOCK_KNOWN_FOR_NS
        )

    def health(self, name: str) -> WorkerHealth:
        """What it felt during the run, on the master's clock."""
        health = self.own_health or WorkerHealth(name)
        health.worker = name  # whatever it calls itself
        if self.clock.worst_used_ns is not None:
            now_ns = self.clock.now(time.monotonic_ns()).offset_ns
            health.clock_offset_ms = now_ns / 1e6
            health.clock_uncertainty_ms = self.clock.worst_used_ns / 1e6
            if (pause_ns := health.longest_pause_mono_ns) is not None:
                health.longest_pause_mono_ns = (
                    pause_ns + self.clock.at(pause_ns).offset_ns
                )
            health.late_wakeups = [
                (since_ns + now_ns, ms) for since_ns, ms in health.late_wakeups
            ]
        return health
