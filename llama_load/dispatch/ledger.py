"""Who has which leases: the workers, their waiting users, and what became of the workers that went away. Knows no phases."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from llama_load.dispatch.leases import Key, Lease
from llama_load.dispatch.workers import HeldLease, Wants, WorkerLeases, Workers, could_have_begun, possibly_sent
from llama_load.observed.losses import LostWorker
from llama_load.targets.balance import Balancer
from llama_load.units import NS_PER_S

# A worker may have begun requests this long after its last message: it reports them ten times a second.
UNSAID_NS = NS_PER_S // 4


@dataclass(slots=True)
class Ledger:
    """The leases of all workers. `in_flight` counts users with leases, and requests that returned workers still have in flight.

    `departures`: for each worker that was lost or left, when it was last heard of, and when that was noticed, ns.
    """

    balancer: Balancer = field(default_factory=Balancer)
    now_ns: Callable[[], int] = time.monotonic_ns
    workers: Workers = field(default_factory=Workers)
    wants: Wants = field(default_factory=Wants)
    in_flight: int = 0
    lost: list[LostWorker] = field(default_factory=list)
    departures: list[tuple[int, int]] = field(default_factory=list)
    is_closed: bool = False

    # ------------------------------------------------------------------ what there is

    @property
    def under_way(self) -> int:
        """How many users with leases have a request whose scheduled time has come."""
        now_ns = self.now_ns()
        return self.in_flight - sum(1 for entry in self.workers.leases if (entry.lease.scheduled_ns or now_ns) > now_ns)

    def requests_under_way(self) -> list[Lease]:
        """The lease that each user with a request under way uses now. (Of a conversation all turns are leased at once.)"""
        now_ns = self.now_ns()
        present: dict[int, Lease] = {}  # by holder
        for entry in self.workers.leases:
            if not entry.has_ended and (entry.lease.scheduled_ns or now_ns) <= now_ns:
                present.setdefault(id(entry.holder), entry.lease)
        return list(present.values())

    def has_lease(self, worker: str, key: Key) -> bool:
        """Whether this worker has this lease."""
        return key in self.workers[worker].leases

    def accepts_record(self, worker: str, key: Key) -> bool:
        """Whether this record counts: the worker has the lease, or was lost with it and the request was not repeated."""
        return self.has_lease(worker, key) or self._loss_of(worker, key) is not None

    # ------------------------------------------------------------------ workers and their users

    def expect(self, worker: str) -> None:
        """This worker got its run configuration: it will join."""
        self.workers[worker].is_gone = self.workers[worker].has_left

    def join(self, worker: str) -> None:
        """This worker can take arrivals from now on."""
        entry = self.workers[worker]
        if entry.is_ready == entry.has_left:
            entry.is_ready = not entry.has_left
            entry.changed(entry)
        entry.is_gone = entry.has_left

    def want(self, worker: str, workload: str, count: int) -> None:
        """`count` more users of this worker wait for a request of this workload."""
        if not self.is_closed and not self.workers[worker].has_left:
            self.wants.add(worker, workload, count)

    def close(self) -> None:
        """Nobody gets leases any more."""
        self.is_closed = True
        self.wants.clear()

    def assign(self, worker: str, leases: list[Lease]) -> None:
        """One user of this worker gets these leases, with the next delivery."""
        self.workers[worker].hold(leases, self.now_ns())
        self.in_flight += 1
        self.wants.satisfied(worker, leases[0].workload)

    # ------------------------------------------------------------------ ends

    def request_ended(self, worker: str, key: Key, *, refused: bool = False) -> None:
        """The request of this lease has ended; its record comes later."""
        if (entry := self.workers[worker].leases.get(key)) is not None:
            self._free_user(entry, refused=refused)
        else:
            self._end_stray(worker, key)

    def record_stored(self, worker: str, key: Key, *, refused: bool = False) -> bool:
        """The record of this request is stored. Whether a lease has ended with it; else the request of a lost worker has."""
        if (entry := self.workers[worker].leases.pop(key, None)) is not None:
            self._free_user(entry, refused=refused)
            return True
        if (loss := self._loss_of(worker, key)) is not None:
            possibly_sent(loss, key).remove(key[1])
            self._end_stray(worker, key)
        return False

    def take_back(self, worker: str, keys: Iterable[Key]) -> list[Lease]:
        """Take these leases from the worker; those that it had."""
        taken = []
        for key in keys:
            if (entry := self.workers[worker].leases.pop(key, None)) is not None:
                self._free_user(entry)
                taken.append(entry.lease)
        return taken

    def reconcile(self, worker: str, delivered: int, holds: Iterable[Key], wants: Mapping[str, int]) -> list[Lease]:
        """See `Dispatcher.reconcile`. Takes back the leases that were lost on their way."""
        self.join(worker)
        entry, holds = self.workers[worker], set(holds)
        strays = {key for key in holds if self._loss_of(worker, key) is not None}
        self.in_flight += len(strays) - len(entry.strays)
        entry.strays = strays
        self.wants.forget(worker)
        leases = entry.leases
        coming = [lease.lease.workload for lease in leases.values() if lease.delivery > delivered and not lease.lease.follows]
        for workload, count in wants.items():
            self.want(worker, workload, count - coming.count(workload))
        return self.take_back(worker, [key for key, lease in leases.items() if lease.delivery <= delivered and key not in holds])

    def lose(self, worker: str, started: Iterable[Key], heard_ns: int | None, *, may_return: bool) -> tuple[set[Key], list[Lease]]:
        """See `Dispatcher.lose`. The requests that may have been sent, and the leases that others may get."""
        self._note_departure(worker, heard_ns)
        leases = self.workers[worker].leases
        sent = {key for key in started if key in leases}
        if may_return:
            sent = set(leases)
        elif heard_ns is not None:
            sent |= could_have_begun(leases, sent, heard_ns + UNSAID_NS)
        measured, warmup = (sorted(index for is_warmup, index in sent if is_warmup == which) for which in (False, True))
        self.lost.append(LostWorker(worker, measured, len(leases) - len(sent), warmup))
        for key in sent:
            self._free_user(leases.pop(key))
        return sent, self._release(worker)

    def give_up(self, worker: str, keys: Iterable[Key]) -> set[Key]:
        """The worker has begun these requests and will deliver no record of them. Those whose leases it still had."""
        unnamed = [key for key in keys if self._loss_of(worker, key) is None]
        if unnamed:
            measured = sorted(index for is_warmup, index in unnamed if not is_warmup)
            warmup = sorted(index for is_warmup, index in unnamed if is_warmup)
            self.lost.append(LostWorker(worker, measured, 0, warmup, gave_up=True))

        leases = self.workers[worker].leases
        held = leases.keys() & set(unnamed)
        for key in held:
            self._free_user(leases.pop(key))
        return held

    def leave(self, worker: str) -> list[Lease]:
        """The worker takes no more leases. Those on their way to it go to others."""
        self.workers[worker].has_left = True
        self._note_departure(worker, None)
        return self._release(worker)

    def _note_departure(self, worker: str, heard_ns: int | None) -> None:
        if self.workers[worker].deliveries:
            now_ns = self.now_ns()
            self.departures.append((now_ns if heard_ns is None else heard_ns, now_ns))

    def _release(self, worker: str) -> list[Lease]:
        """Give this worker no more leases, and take back those that it has."""
        entry: WorkerLeases = self.workers[worker]
        entry.is_ready, entry.is_gone = False, True
        self.wants.forget(worker)
        self.in_flight -= len(entry.strays)
        entry.strays.clear()
        return self.take_back(worker, list(entry.leases))

    def _free_user(self, entry: HeldLease, *, refused: bool = False) -> None:
        """The request of this lease has ended, or will not be sent: its user has one less to send."""
        if entry.has_ended:
            return
        entry.has_ended = True
        if refused:
            self.balancer.refused(entry.lease.replica)
        holder = entry.holder
        holder.left -= 1
        if not holder.left:
            self.in_flight -= 1
            holder.worker.let_go()
            self.balancer.ended(holder.replica)

    def _end_stray(self, worker: str, key: Key) -> None:
        if key in self.workers[worker].strays:
            self.workers[worker].strays.remove(key)
            self.in_flight -= 1

    def _loss_of(self, worker: str, key: Key) -> LostWorker | None:
        missing = (gone for gone in self.lost if gone.worker == worker and key[1] in possibly_sent(gone, key))
        return next(missing, None)
