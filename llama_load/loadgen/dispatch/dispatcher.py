"""Assigns requests to workers, phase after phase, every prompt index exactly once.

Pure bookkeeping, without gevent, Locust or a network. In a closed loop, workers request leases as
their users become free; a lease contains its prompt, so workers need no data. In an open loop, a
lease is sent shortly before its scheduled time to the worker with the fewest requests, which starts
a user for it if none is free. Leases that a lost worker had not begun, and leases lost on their
way, go to other workers. Every lease names its replica.

The ledger knows who has which leases, the assigner which request comes next. Each event below
changes them first; then what may be sent is handed out, once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from llama_load.loadgen.dispatch.assigner import Assigner
from llama_load.loadgen.dispatch.leases import Key, Lease
from llama_load.loadgen.dispatch.ledger import Ledger
from llama_load.loadgen.dispatch.phases import Phase
from llama_load.loadgen.workloads.prompt_plan import Plan
from llama_load.servers.balance import Balancer


class Courier(Protocol):
    """Sends leases to workers."""

    def deliver(self, worker: str, leases: list[Lease]) -> None:
        """Send these leases to this worker, in the order of the calls."""


class Dispatcher:
    """Hands out the leases of a run through its courier, and counts their ends."""

    def __init__(
        self,
        plans: Mapping[str, Plan],
        courier: Courier,
        *,
        balancer: Balancer | None = None,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._courier = courier
        self.ledger = Ledger(balancer or Balancer(), now_ns)
        self.assigner = Assigner(plans, self.ledger)
        # called at the end of the present phase; None: it has ended
        self._on_end: Callable[[], None] | None = None
        self._is_serving = self._has_changed = False

    # ------------------------------------------------------------------ the run

    def begin(
        self, phase: Phase, on_end: Callable[[], None], begun_ns: int | None = None
    ) -> None:
        """Start leasing requests of this phase. Its instants are relative to `begun_ns` (None:
        now). `on_end` is called once, when its last request has ended."""
        self.assigner.begin(
            phase, self.ledger.now_ns() if begun_ns is None else begun_ns
        )
        self._on_end = on_end
        self.serve()

    def close_phase(self) -> None:
        """End the time of the present phase: it is over when all leased requests have ended."""
        self.assigner.phase.pool.close()
        self.serve()

    def close(self) -> None:
        """Hand out no more leases."""
        self.ledger.close()

    # ------------------------------------------------------------------ messages from workers

    def want(self, worker: str, workload: str, count: int) -> None:
        """`count` users of a worker wait for a request (or conversation) of this workload."""
        self.ledger.want(worker, workload, count)
        self.serve()

    def reconcile(
        self,
        worker: str,
        delivered: int,
        holds: Iterable[Key],
        wants: Mapping[str, int],
        held_open: Iterable[Key] = (),
    ) -> None:
        """The leases that a worker holds after `delivered` deliveries (received or lost), and how
        many more of each workload its users wait for. Leases of these deliveries that it does not
        hold were lost on their way, and are given out again. Requests that have ended are
        `held_open` by tasks which may still reject the answers."""
        lost = self.ledger.reconcile(worker, delivered, holds, wants, held_open)
        self._put_back(lost)
        self.serve()

    def give_back(self, worker: str, keys: Iterable[Key]) -> None:
        """Take back leases that were not used, or whose request was cancelled; others may get
        them."""
        self._put_back(self.ledger.take_back(worker, keys))
        self.serve()

    def request_ended(self, worker: str, key: Key, *, refused: bool = False) -> None:
        """This request has ended, or the server `refused` the connection; its record comes
        later."""
        if self.ledger.has_lease(worker, key):
            self.assigner.drop_overdue()
        self.ledger.request_ended(worker, key, refused=refused)
        self.serve()

    def record_stored(self, worker: str, key: Key, *, refused: bool = False) -> None:
        """The record of a leased request is stored, and the ledger `accepts_record`."""
        self.records_stored([(worker, key)], refused=refused)

    def records_stored(
        self, ended: Iterable[tuple[str, Key]], *, refused: bool = False
    ) -> None:
        """The same for many, by worker and key. What they make room for is handed out once, after
        them."""
        for worker, key in ended:
            if self.ledger.has_lease(worker, key):
                self.assigner.drop_overdue()
            if self.ledger.record_stored(worker, key, refused=refused):
                self.assigner.end(key)
        self.serve()

    def lose(
        self,
        worker: str,
        started: Iterable[Key],
        heard_ns: int | None = None,
        *,
        may_return: bool = False,
    ) -> None:
        """The worker, last heard of at `heard_ns`, is lost. Requests that it had `started`, or
        could have begun unreported, may have been sent and are not repeated; the others go to other
        workers. If it `may_return`, none is repeated: it would send them, too."""
        sent, unsent = self.ledger.lose(
            worker, started, heard_ns, may_return=may_return
        )
        for key in sent:
            self.assigner.end(key)
        self._put_back(unsent)
        self.serve()

    def give_up(self, worker: str, keys: Iterable[Key]) -> None:
        """The worker has begun these requests and will deliver no record of them: they are named as
        possibly sent, not repeated."""
        for key in self.ledger.give_up(worker, keys):
            self.assigner.end(key)
        self.serve()

    def leave(self, worker: str) -> None:
        """The worker has delivered all records and takes no more leases. Leases on their way to it
        go to others."""
        self._put_back(self.ledger.leave(worker))
        self.serve()

    def _put_back(self, leases: Iterable[Lease]) -> None:
        for lease in leases:
            self.assigner.put_back(lease)

    # ------------------------------------------------------------------ handing out

    def serve(self) -> None:
        """End the phase if its last request has ended, and hand out the requests that may be sent
        now or soon: one request or conversation per worker in turn, so that no worker gets all of
        the last ones.

        Who gets leases may change something at once, such as giving them back: that is seen to
        after all have theirs.
        """
        self._has_changed = True
        if self._is_serving:
            return
        self._is_serving = True
        try:
            while self._has_changed:
                self._has_changed = False
                self._end_phase()
                self._deliver(self._assign())
        finally:
            self._is_serving = False

    def _end_phase(self) -> None:
        for key in self.ledger.count_held_open():
            self.assigner.end(key)
        if self._on_end is not None and self.assigner.has_ended:
            on_end = self._on_end
            self._on_end = None
            on_end()

    def _assign(self) -> dict[str, list[Lease]]:
        """The leases for each worker, in the ledger."""
        of_workers: dict[str, list[Lease]] = {}
        while (
            self._on_end is not None
            and not self.ledger.is_closed
            and (assigned := self.assigner.next_leases())
        ):
            worker, leases = assigned
            self.ledger.assign(worker, leases)
            of_workers.setdefault(worker, []).extend(leases)
        for worker in of_workers:
            self.ledger.workers[worker].deliveries += 1
        return of_workers

    def _deliver(self, of_workers: Mapping[str, list[Lease]]) -> None:
        for worker, leases in of_workers.items():
            self._courier.deliver(worker, leases)
