"""After users hang up (--abort-rate): how soon does the server stop working for them, and is it
well?

The server is asked often while a request is in flight that will be given up, and until nothing is
at work for users who have gone; else rarely. A look costs llama-server about a millisecond between
two steps, vLLM some milliseconds of its API process, so the quickest look so far makes at most
`MOST_SHARE` of the time.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from llama_load.ground.units import NS_PER_S
from llama_load.loadgen.run.in_thread import in_thread
from llama_load.loadgen.run.watcher import LoopWatcher, RunUnderWay
from llama_load.loadgen.users.hang_ups import HangUps
from llama_load.run_folder import RunWriter
from llama_load.run_folder.arithmetic.freeing_times import Look, Spans, freeing_times
from llama_load.run_folder.observed.hang_up_check import FreeingTimes, HangUpCheck
from llama_load.run_folder.observed.record import ABORTED
from llama_load.servers.target import Target
from llama_load.servers.tls import TlsOptions
from llama_load.servers.work_counts import WorkCount, is_healthy, working_on

OFTEN_S = 0.05
RARELY_S = 0.2
# How long to ask often after the last sign of a user who hangs up.
OFTEN_FOR_S = 0.5
MOST_SHARE = 0.1
# A server stops within a few steps of its batch; a slot that is still busy after this long is not
# going to be freed.
IDLE_WITHIN_S = 10.0
IDLE_EVERY_S = 0.02


@dataclass(slots=True)
class _Seen:
    """What is known of one server: the looks at it, and the requests that were sent to it."""

    looks: list[Look] = field(default_factory=list)
    sent_ns: array[int] = field(default_factory=lambda: array("q"))
    ended_ns: array[int] = field(default_factory=lambda: array("q"))
    given_up_ns: array[int] = field(default_factory=lambda: array("q"))

    def add(self, status: str, sent_ns: int | None, ended_ns: int) -> None:
        """A request has ended."""
        if sent_ns is not None:
            self.sent_ns.append(sent_ns)
            self.ended_ns.append(ended_ns)
            if status == ABORTED:
                self.given_up_ns.append(ended_ns)

    def freeing(self) -> FreeingTimes | None:
        """None: the server never reported what it works on."""
        if not self.looks:
            return None
        spans = Spans(
            np.sort(np.array(self.sent_ns)),
            np.sort(np.array(self.ended_ns)),
            np.sort(np.array(self.given_up_ns)),
        )
        return freeing_times(spans, self.looks)


def no_probes(_replica: int) -> int:
    """The probes in flight without --probe-rate."""
    return 0


class HangUpsWatcher(LoopWatcher):
    """Compares what each server works on with what is in flight, while the run goes on and after
    its end.

    `gives_up`: whether the user of the measured request with this index hangs up. `work` and
    `healthy` ask a server, `probes` gives its probes in flight; they are for tests with a clock of
    their own.
    """

    columns = ("host", "status", "sent_mono_ns", "ended_mono_ns")

    def __init__(
        self,
        run: RunUnderWay,
        targets: Sequence[Target],
        gives_up: Callable[[int], bool],
        work: Callable[[Target], WorkCount | None],
        healthy: Callable[[Target], bool],
        *,
        probes: Callable[[int], int] = no_probes,
    ) -> None:
        super().__init__(run)
        self._targets = targets
        self._gives_up = lru_cache(1 << 16)(gives_up)
        self._work = work
        self._healthy = healthy
        self._probes = probes
        self._seen = {target.address.url: _Seen() for target in targets}
        self._often_until_s = 0.0
        self._quickest_s = 0.0
        self._checks: list[HangUpCheck] = []

    def add(self, rows: Iterable[Sequence[Any]]) -> None:
        """See `Watcher.add`."""
        for host, status, sent_ns, ended_ns in rows:
            if (seen := self._seen.get(host)) is not None:
                seen.add(status, sent_ns, ended_ns)

    def look(self) -> None:
        """Note what servers work on, and decide when to look again."""
        at_work = 0
        for replica, target in enumerate(self._targets):
            at_work += self._look_at(replica, target) or 0

        leases = self.run.dispatcher.ledger.requests_under_way()
        is_near = any(
            not lease.warmup and self._gives_up(lease.index) for lease in leases
        )
        if is_near or at_work > len(leases):
            self._often_until_s = self.run.clock.now_s + OFTEN_FOR_S

    def stop(self) -> None:
        """Nothing is in flight any more: wait until the servers are idle."""
        super().stop()
        self._checks = [
            self._check(replica, target) for replica, target in enumerate(self._targets)
        ]

    def facts(self, writer: RunWriter) -> None:
        """See `Watcher.facts`."""
        writer.manifest.hang_ups = self._checks

    def _watch(self) -> None:
        while True:  # also while the last requests end
            pause_s = (
                OFTEN_S if self.run.clock.now_s < self._often_until_s else RARELY_S
            )
            self.run.clock.sleep(max(pause_s, self._quickest_s * (1 / MOST_SHARE - 1)))
            self.look()

    def _look_at(self, replica: int, target: Target) -> int | None:
        """Note what this server works on; None: it does not report it."""
        probes = self._probes(replica)
        asked_ns = self.run.clock.now_ns()
        count = self._work(target)
        answered_ns = self.run.clock.now_ns()
        if count is None:
            return None
        took_s = (answered_ns - asked_ns) / NS_PER_S
        self._quickest_s = min(self._quickest_s, took_s) if self._quickest_s else took_s
        self._seen[target.address.url].looks.append(
            Look(asked_ns, answered_ns, *count, max(probes, self._probes(replica)))
        )
        return count.at_work

    def _check(self, replica: int, target: Target) -> HangUpCheck:
        begun_s = self.run.clock.now_s
        while (
            busy := self._look_at(replica, target)
        ) and self.run.clock.now_s - begun_s <= IDLE_WITHIN_S:
            self.run.clock.sleep(IDLE_EVERY_S)
        waited_ms = (self.run.clock.now_s - begun_s) * 1e3
        return HangUpCheck(
            host=target.address.url,
            busy=busy,
            waited_ms=waited_ms,
            idle_after_ms=waited_ms if busy == 0 else None,
            freeing=self._seen[target.address.url].freeing(),
            healthy=self._healthy(target),
        )


def hang_ups_watcher(
    run: RunUnderWay,
    targets: Sequence[Target],
    hang_ups: HangUps,
    tls: TlsOptions,
    probes: Callable[[int], int],
) -> HangUpsWatcher:
    """A watcher that asks the servers in threads."""
    return HangUpsWatcher(
        run,
        targets,
        lambda index: hang_ups.of(index) is not None,
        lambda target: in_thread(lambda: working_on(target, tls)),
        lambda target: in_thread(lambda: is_healthy(target, tls)),
        probes=probes,
    )
