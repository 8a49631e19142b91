"""Who has which leases: the workers, their waiting users, and what became of the workers that went
away. Knows no phases."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from llama_load.ground.units import NS_PER_S
from llama_load.loadgen.dispatch.leases import Key, Lease
from llama_load.loadgen.dispatch.workers import (
    HeldLease,
    Wants,
    WorkerLeases,
    Workers,
    could_have_begun,
    possibly_sent,
)
from llama_load.run_folder.observed.losses import LostWorker
from llama_load.servers.balance import Balancer

# A worker may have begun requests this long after its last message: it reports them ten times a
# second.
UNSAID_NS = NS_PER_S // 4
# So long nothing has happened, while users wait and the records that are missing are held open by
# tasks, which may still reject their answers.
HELD_OPEN_NS = NS_PER_S


@dataclass(slots=True)
class Ledger:
    """The leases of all workers. `in_flight` counts users with leases, and requests that returned
    workers still have in flight.

    `departures`: for each worker that was lost or left, when it was last heard of, and when that
    was noticed, ns.
    """

    balancer: Balancer = field(default_factory=Balancer)
    now_ns: Callable[[], int] = time.monotonic_ns
    workers: Workers = field(default_factory=Workers)
    wants: Wants = field(default_factory=Wants)
    in_flight: int = 0
    lost: list[LostWorker] = field(default_factory=list)
    departures: list[tuple[int, int]] = field(default_factory=list)
    is_closed: bool = False
    # Those of `lost` that name a request of a worker. A worker may name a million of them: looking
    # through their lists for each key of a message would block the master for hours.
    _losses: dict[tuple[str, Key], list[LostWorker]] = field(default_factory=dict)
    # When a lease was last given, its request ended, or its record was stored.
    _changed_ns: int = 0

    # ------------------------------------------------------------------ what there is

    @property
    def under_way(self) -> int:
        """How many users with leases have a request whose scheduled time has come."""
        now_ns = self.now_ns()
        under_way = self.in_flight
        for entry in self.workers.leases:
            if (entry.lease.scheduled_ns or now_ns) > now_ns:
                under_way -= 1
        return under_way

    def requests_under_way(self) -> list[Lease]:
        """The lease that each user with a request under way uses now. (Of a conversation all turns
        are leased at once.)"""
        now_ns = self.now_ns()
        present: dict[int, Lease] = {}  # by holder
        for entry in self.workers.leases:
            if not entry.has_ended and (entry.lease.scheduled_ns or now_ns) <= now_ns:
                present.setdefault(id(entry.holder), entry.lease)
        return list(present.values())

    def has_lease(self, worker: str, key: Key, delivery: int | None = None) -> bool:
        """Whether this worker has a lease of this request, from this delivery if it is given."""
        held = self.workers[worker].leases.get(key)
        if held is None:
            return False
        return delivery is None or held.delivery == delivery

    def accepts_record(self, worker: str, key: Key) -> bool:
        """Whether this record counts: the worker has the lease, or was lost with it and the request
        was not repeated."""
        return self.has_lease(worker, key) or self._is_lost(worker, key)

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
        self._changed_ns = self.now_ns()
        self.workers[worker].hold(leases, self._changed_ns)
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
        """The record of this request is stored. Whether a lease has ended with it; else the request
        of a lost worker has, or the request was counted before."""
        self._changed_ns = self.now_ns()
        if (entry := self.workers[worker].leases.pop(key, None)) is not None:
            self._free_user(entry, refused=refused)
            return not entry.is_counted
        if self._is_lost(worker, key):
            loss = self._losses[worker, key].pop(0)
            possibly_sent(loss, key).remove(key[1])
            self._end_stray(worker, key)
        return False

    def count_held_open(self) -> list[Key]:
        """The requests whose records are held open by tasks that wait for requests themselves (see
        `HELD_OPEN_NS`), each once. A phase that waited for them would never end."""
        if self.in_flight or not self.wants.count:
            return []
        if self.now_ns() - self._changed_ns < HELD_OPEN_NS:
            return []

        held_open = []
        for entry in self.workers.leases:
            if entry.is_open and not entry.is_counted:
                entry.is_counted = True
                held_open.append(entry.lease.key)
        return held_open

    def take_back(self, worker: str, keys: Iterable[Key]) -> list[Lease]:
        """Take these leases from the worker; those that it had."""
        taken = []
        for key in keys:
            if (entry := self.workers[worker].leases.pop(key, None)) is not None:
                self._free_user(entry)
                if not entry.is_counted:
                    taken.append(entry.lease)
        return taken

    def reconcile(
        self,
        worker: str,
        delivered: int,
        holds: Iterable[Key],
        wants: Mapping[str, int],
        held_open: Iterable[Key],
    ) -> list[Lease]:
        """See `Dispatcher.reconcile`. Takes back the leases that were lost on their way."""
        self.join(worker)
        entry = self.workers[worker]
        held = set(holds)
        ended = set(held_open)
        strays = {key for key in held - ended if self._is_lost(worker, key)}
        self.in_flight += len(strays) - len(entry.strays)
        entry.strays = strays
        # They have ended: the worker's word of it may have got lost with a connection.
        for key in entry.leases.keys() & ended:
            entry.leases[key].is_open = True
            self._free_user(entry.leases[key])

        lost = []
        coming: Counter[str] = Counter()
        for key, lease in entry.leases.items():
            if lease.delivery > delivered:
                coming[lease.lease.workload] += not lease.lease.follows
            elif key not in held:
                lost.append(key)

        self.wants.forget(worker)
        for workload, count in wants.items():
            self.want(worker, workload, count - coming[workload])
        return self.take_back(worker, lost)

    def lose(
        self,
        worker: str,
        started: Iterable[Key],
        heard_ns: int | None,
        *,
        may_return: bool,
    ) -> tuple[set[Key], list[Lease]]:
        """See `Dispatcher.lose`. The requests that may have been sent and were not counted before,
        and the leases that others may get."""
        self._note_departure(worker, heard_ns)
        leases = self.workers[worker].leases
        sent = {key for key in started if key in leases}
        if may_return:
            sent = set(leases)
        elif heard_ns is not None:
            sent |= could_have_begun(leases, sent, heard_ns + UNSAID_NS)

        measured, warmup = _by_kind(sent)
        gone = LostWorker(worker, measured, len(leases) - len(sent), warmup)
        self._note_loss(gone, sent)
        return self._end(leases, sent), self._release(worker)

    def give_up(self, worker: str, keys: Iterable[Key]) -> set[Key]:
        """The worker has begun these requests and will deliver no record of them. Those whose
        leases it still had, and which were not counted before."""
        unnamed = [key for key in keys if not self._is_lost(worker, key)]
        if unnamed:
            measured, warmup = _by_kind(unnamed)
            gone = LostWorker(worker, measured, 0, warmup, gave_up=True)
            self._note_loss(gone, unnamed)

        leases = self.workers[worker].leases
        return self._end(leases, leases.keys() & set(unnamed))

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
        entry.is_ready = False
        entry.is_gone = True
        self.wants.forget(worker)
        self.in_flight -= len(entry.strays)
        entry.strays.clear()
        return self.take_back(worker, list(entry.leases))

    def _end(self, leases: dict[Key, HeldLease], keys: Iterable[Key]) -> set[Key]:
        ended = set()
        for key in keys:
            entry = leases.pop(key)
            self._free_user(entry)
            if not entry.is_counted:
                ended.add(key)
        return ended

    def _free_user(self, entry: HeldLease, *, refused: bool = False) -> None:
        """The request of this lease has ended, or will not be sent: its user has one less to
        send."""
        if entry.has_ended:
            return
        entry.has_ended = True
        self._changed_ns = self.now_ns()
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

    def _note_loss(self, gone: LostWorker, keys: Collection[Key]) -> None:
        """Once for each worker, and again where it lost more: Locust may take one that is gone for
        present for a moment."""
        is_named = any(each.worker == gone.worker for each in self.lost)
        if is_named and not keys and not gone.handed_on:
            return

        self.lost.append(gone)
        for key in keys:
            self._losses.setdefault((gone.worker, key), []).append(gone)

    def _is_lost(self, worker: str, key: Key) -> bool:
        """Whether this request was lost with this worker."""
        return bool(self._losses.get((worker, key)))


def _by_kind(keys: Iterable[Key]) -> tuple[list[int], list[int]]:
    """The numbers of measured requests and those of the warm-up, each sorted."""
    measured = []
    warmup = []
    for is_warmup, index in sorted(keys):
        if is_warmup:
            warmup.append(index)
        else:
            measured.append(index)
    return measured, warmup
