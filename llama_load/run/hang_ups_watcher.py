"""After users hang up (--abort-rate): does the server stop working for them, and is it well?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llama_load.observed.hang_up_check import HangUpCheck
from llama_load.run.in_thread import in_thread
from llama_load.run.watcher import LoopWatcher, RunUnderWay
from llama_load.run_folder import RunWriter
from llama_load.targets.target import Target
from llama_load.targets.work_counts import is_healthy, working_on
from llama_load.wire.tls import TlsOptions

# A server stops within a few steps of its batch; a slot that is still busy after this long is not going to be freed.
IDLE_WITHIN_S, IDLE_EVERY_S = 10.0, 0.02


@dataclass(slots=True)
class _Excess:
    """Requests at work beyond those in flight: since when, the most, and the longest time, s."""

    since_s: float | None = None
    most: int | None = None
    longest_s: float | None = None


def no_probes(_replica: int) -> int:
    """The probes in flight without --probe-rate."""
    return 0


class HangUpsWatcher(LoopWatcher):
    """Compares what each server works on with what is in flight, while the run goes on and after its end.

    `busy` and `healthy` ask a server, `probes` gives its probes in flight; they are for tests with a clock of their own.
    """

    every_s = 0.2

    def __init__(
        self,
        run: RunUnderWay,
        targets: Sequence[Target],
        busy: Callable[[Target], int | None],
        healthy: Callable[[Target], bool],
        probes: Callable[[int], int] = no_probes,
    ) -> None:
        super().__init__(run)
        self._targets, self._busy, self._healthy, self._probes = targets, busy, healthy, probes
        self._excess = [_Excess() for _ in targets]
        self._checks: list[HangUpCheck] = []

    def look(self) -> None:
        """Note the requests that servers work on although nobody waits for them."""
        for replica, (target, excess) in enumerate(zip(self._targets, self._excess, strict=True)):
            before = self._in_flight(replica)
            busy = self._busy(target)
            if busy is not None:
                self._note(excess, busy - max(before, self._in_flight(replica)))

    def stop(self) -> None:
        """Nothing is in flight any more: wait until the servers are idle."""
        super().stop()
        self._checks = [self._check(target, excess) for target, excess in zip(self._targets, self._excess, strict=True)]

    def facts(self, writer: RunWriter) -> None:
        """See `Watcher.facts`."""
        writer.manifest.hang_ups = self._checks

    def _in_flight(self, replica: int) -> int:
        own = sum(lease.replica == replica for lease in self.run.dispatcher.ledger.requests_under_way())
        return own + self._probes(replica)

    def _note(self, excess: _Excess, surplus: int) -> None:
        now_s = self.run.clock.now_s
        excess.most = max(excess.most or 0, surplus, 0)
        if surplus <= 0:
            excess.since_s = None
            return
        excess.since_s = now_s if excess.since_s is None else excess.since_s
        excess.longest_s = max(excess.longest_s or 0.0, now_s - excess.since_s)

    def _check(self, target: Target, excess: _Excess) -> HangUpCheck:
        begun_s = self.run.clock.now_s
        idle_s: float | None = None
        while (busy := self._busy(target)) is not None:
            elapsed_s = self.run.clock.now_s - begun_s
            if not busy:
                idle_s = elapsed_s
            if not busy or elapsed_s > IDLE_WITHIN_S:
                break
            self.run.clock.sleep(IDLE_EVERY_S)
        return HangUpCheck(
            host=target.address.url,
            busy=busy,
            idle_after_ms=None if idle_s is None else idle_s * 1e3,
            orphans=excess.most,
            freed_within_ms=None if excess.longest_s is None else excess.longest_s * 1e3,
            healthy=self._healthy(target),
        )


def hang_ups_watcher(run: RunUnderWay, targets: Sequence[Target], tls: TlsOptions, probes: Callable[[int], int]) -> HangUpsWatcher:
    """A watcher that asks the servers in threads."""
    return HangUpsWatcher(
        run,
        targets,
        lambda target: in_thread(lambda: working_on(target, tls)),
        lambda target: in_thread(lambda: is_healthy(target, tls)),
        probes,
    )
