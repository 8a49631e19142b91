"""Assigns requests to workers, phase after phase, every prompt index exactly once.

Pure bookkeeping, without gevent, Locust or a network. In a closed loop, workers request leases as their users become free; a
lease contains its prompt, so workers need no data. In an open loop, a lease is sent shortly before its scheduled time to the
worker with the fewest requests, which starts a user for it if none is free. Leases that a lost worker had not begun, and
leases lost on their way, go to other workers. Every lease names its replica.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from llama_load.dispatch.leases import IndexPool, Key, Lease
from llama_load.dispatch.phases import Phase
from llama_load.dispatch.workers import HeldLease, Wants, Workers, could_have_begun, possibly_sent
from llama_load.observed.losses import LostWorker
from llama_load.targets.balance import Balancer
from llama_load.units import NS_PER_S
from llama_load.workloads.prompt import Plan

# Lease a request this long before its scheduled time: longer than a message takes, short enough that few users wait.
AHEAD_NS = NS_PER_S // 2
# A worker may have begun requests this long after its last message: it reports them ten times a second.
UNSAID_NS = NS_PER_S // 4


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
        self._plans = plans
        self._courier = courier
        self._balancer = balancer or Balancer()
        self._now_ns = now_ns
        self._phases: list[Phase] = []
        self._chain: list[Phase] = []  # the present phase, after those whose slots it takes over
        self._phase_over: Callable[[], None] | None = None  # called at the end of the present phase; None: it has ended
        self._closed = False
        self._plan_indices: defaultdict[tuple[bool, str], IndexPool] = defaultdict(lambda: IndexPool(None))
        self._workers = Workers()
        self._wants = Wants()
        self._full = False  # the next request waits for the limit
        self._room_ns = 0  # when it last stopped to
        self.in_flight = 0  # users with leases, and requests that returned workers still have in flight
        self.lost: list[LostWorker] = []
        # For each worker that was lost or left: when it was last heard of, and when that was noticed, ns.
        self.departures: list[tuple[int, int]] = []

    # ------------------------------------------------------------------ phases

    def begin(self, phase: Phase, over: Callable[[], None], begun_ns: int | None = None) -> None:
        """Start leasing requests of this phase. Its instants are relative to `begun_ns` (None: now). `over` is called once, when
        its last request has ended."""
        self._chain.clear()
        self._enter(phase, self._now_ns() if begun_ns is None else begun_ns)
        self._phase_over, self._full = over, False
        self.serve()
        self._check_phase_over()

    def _enter(self, phase: Phase, begun_ns: int) -> None:
        phase.begun_ns = begun_ns
        earlier = [each.pool.next for each in self._phases if each.warmup == phase.warmup]
        phase.pool = IndexPool(phase.total, max(earlier, default=0))
        for key, pool in self._plan_indices.items():
            if key[0] == phase.warmup:  # not the rest of a conversation whose beginning was sent before
                self._plan_indices[key] = IndexPool(None, 0 if phase.repeats else pool.next)
        self._phases.append(phase)
        self._chain.append(phase)

    def close_phase(self) -> None:
        """End the time of the present phase: it is over when all leased requests have ended."""
        self.phase.pool.close()
        self._check_phase_over()

    @property
    def has_begun(self) -> bool:
        """Whether there has been a phase."""
        return bool(self._phases)

    @property
    def phase(self) -> Phase:
        """The present phase; not one that only keeps up the load."""
        return next(phase for phase in reversed(self._phases) if not phase.fills)

    @property
    def measured(self) -> list[Phase]:
        """The phases so far in which requests were measured."""
        return [phase for phase in self._phases if not phase.warmup]

    @property
    def measuring(self) -> bool:
        """Whether requests are measured now."""
        return self.has_begun and not self.phase.warmup

    @property
    def held(self) -> int:
        """How many leases are with workers."""
        return sum(1 for _ in self._workers.held)

    @property
    def waiting(self) -> int:
        """How many users wait for leases."""
        return self._wants.count

    @property
    def all_there(self) -> bool:
        """Whether every worker that is expected takes arrivals, or is gone."""
        return self._workers.all_there

    @property
    def under_way(self) -> int:
        """How many users with leases have a request whose scheduled time has come."""
        now_ns = self._now_ns()
        return self.in_flight - sum(1 for entry in self._workers.held if (entry.lease.scheduled_ns or now_ns) > now_ns)

    def requests_under_way(self) -> list[Lease]:
        """The lease that each user with a request under way uses now. (Of a conversation all turns are leased at once.)"""
        now_ns = self._now_ns()
        present: dict[int, Lease] = {}  # by holder
        for entry in self._workers.held:
            if not entry.is_over and (entry.lease.scheduled_ns or now_ns) <= now_ns:
                present.setdefault(id(entry.holder), entry.lease)
        return list(present.values())

    @property
    def overdue(self) -> int:
        """How many requests of a schedule should have been sent and wait for the limit of requests in flight, or for users."""
        if not self.has_begun or self.phase.scheduled_ns is None:
            return 0
        due = bisect_right(self.phase.scheduled_ns, self._now_ns() - self.phase.begun_ns)
        return max(0, due - self.phase.pool.taken)

    def deliveries(self, worker: str) -> int:
        """How many times leases were handed to this worker."""
        return self._workers[worker].deliveries

    def close(self) -> None:
        """Hand out no more leases."""
        self._closed = True
        self._wants.clear()

    # ------------------------------------------------------------------ messages from workers

    def expect(self, worker: str) -> None:
        """This worker got its run configuration: it will join."""
        self._workers[worker].is_gone = self._workers[worker].has_left

    def join(self, worker: str) -> None:
        """This worker can take arrivals from now on."""
        holder = self._workers[worker]
        if holder.is_ready == holder.has_left:
            holder.is_ready = not holder.has_left
            holder.changed(holder)
        holder.is_gone = holder.has_left

    def want(self, worker: str, workload: str, count: int) -> None:
        """`count` users of a worker wait for a request (or conversation) of this workload."""
        self._queue(worker, workload, count)
        self.serve()

    def reconcile(self, worker: str, delivered: int, holds: Iterable[Key], wants: Mapping[str, int]) -> None:
        """The leases that a worker holds after `delivered` deliveries (received or lost), and how many more of each workload its
        users wait for. Leases of these deliveries that it does not hold were lost on their way, and are given out again."""
        self.join(worker)
        holder, holds = self._workers[worker], set(holds)
        strays = {key for key in holds if self._loss_of(worker, key) is not None}
        self.in_flight += len(strays) - len(holder.strays)
        holder.strays = strays
        held = holder.held
        self._wants.forget(worker)
        coming = [each.lease.workload for each in held.values() if each.delivery > delivered and not each.lease.follows]
        for workload, count in wants.items():
            self._queue(worker, workload, count - coming.count(workload))
        self.give_back(worker, [key for key, each in held.items() if each.delivery <= delivered and key not in holds])

    def over(self, worker: str, key: Key, *, refused: bool = False) -> None:
        """This request has ended, or the server `refused` the connection; its record comes later."""
        if (entry := self._workers[worker].held.get(key)) is not None:
            self._drop_overdue()
            self._let_go(entry, refused=refused)
            self.serve()
        else:
            self._let_stray_go(worker, key)

    def is_held(self, worker: str, key: Key) -> bool:
        """Whether this worker holds this lease."""
        return key in self._workers[worker].held

    def give_back(self, worker: str, keys: Iterable[Key]) -> None:
        """Take back leases that were not used, or whose request was cancelled; others may get them."""
        for key in keys:
            if (entry := self._workers[worker].held.pop(key, None)) is not None:
                self._let_go(entry)
                self._put_back(entry.lease)
        self._check_phase_over()
        self.serve()

    def counts(self, worker: str, key: Key) -> bool:
        """Whether this worker's record of this request counts: it holds the lease, or it was lost with it and the request was not
        repeated."""
        return key in self._workers[worker].held or self._loss_of(worker, key) is not None

    def end(self, worker: str, key: Key, *, refused: bool = False) -> None:
        """The record of a leased request has arrived, and it `counts`."""
        self._end(worker, key, refused=refused)
        self.serve()

    def end_all(self, ended: Iterable[tuple[str, Key]]) -> None:
        """The same for many, by worker and key. What they make room for is handed out once, after them."""
        for worker, key in ended:
            self._end(worker, key)
        self.serve()

    def _end(self, worker: str, key: Key, *, refused: bool = False) -> None:
        if (entry := self._workers[worker].held.pop(key, None)) is not None:
            self._drop_overdue()
            self._let_go(entry, refused=refused)
            self._pool_of(key).end()
            self._check_phase_over()
        elif (loss := self._loss_of(worker, key)) is not None:
            possibly_sent(loss, key).remove(key[1])
            self._let_stray_go(worker, key)

    def lose(self, worker: str, started: Iterable[Key], heard_ns: int | None = None, *, may_return: bool = False) -> None:
        """The worker, last heard of at `heard_ns`, is lost. Requests that it had `started`, or could have begun unreported,
        may have been sent and are not repeated; the others go to other workers. If it `may_return`, none is repeated: it would send
        them, too."""
        self._note_departure(worker, heard_ns)
        held = self._workers[worker].held
        sent = {key for key in started if key in held}
        if may_return:
            sent = set(held)
        elif heard_ns is not None:
            sent |= could_have_begun(held, sent, heard_ns + UNSAID_NS)
        measured, warmup = (sorted(index for is_warmup, index in sent if is_warmup == which) for which in (False, True))
        self.lost.append(LostWorker(worker, measured, len(held) - len(sent), warmup))
        for key in sent:
            self._let_go(held.pop(key))
            self._pool_of(key).end()
        self._release(worker)
        self._check_phase_over()
        self.serve()

    def leave(self, worker: str) -> None:
        """The worker has delivered all records and takes no more leases. Leases on their way to it go to others."""
        self._workers[worker].has_left = True
        self._note_departure(worker, None)
        self._release(worker)
        self._check_phase_over()
        self.serve()

    def _note_departure(self, worker: str, heard_ns: int | None) -> None:
        if self._workers[worker].deliveries:
            now_ns = self._now_ns()
            self.departures.append((now_ns if heard_ns is None else heard_ns, now_ns))

    def _release(self, worker: str) -> None:
        """Give this worker no more leases, and take back those that it holds."""
        holder = self._workers[worker]
        holder.is_ready, holder.is_gone = False, True
        self._wants.forget(worker)
        self.in_flight -= len(holder.strays)
        holder.strays.clear()
        held = holder.held
        for entry in held.values():
            self._let_go(entry)
            self._put_back(entry.lease)
        held.clear()

    def _let_go(self, entry: HeldLease, *, refused: bool = False) -> None:
        """The request of this lease is over, or will not be sent: its user has one less to send."""
        if entry.is_over:
            return
        entry.is_over = True
        if refused:
            self._balancer.refused(entry.lease.replica)
        holder = entry.holder
        holder.left -= 1
        if not holder.left:
            self.in_flight -= 1
            holder.worker.let_go()
            self._balancer.ended(holder.replica)

    def _let_stray_go(self, worker: str, key: Key) -> None:
        if key in self._workers[worker].strays:
            self._workers[worker].strays.remove(key)
            self.in_flight -= 1
            self.serve()

    def _queue(self, worker: str, workload: str, count: int) -> None:
        if not self._closed and not self._workers[worker].has_left:
            self._wants.add(worker, workload, count)

    def _loss_of(self, worker: str, key: Key) -> LostWorker | None:
        missing = (gone for gone in self.lost if gone.worker == worker and key[1] in possibly_sent(gone, key))
        return next(missing, None)

    def _pool_of(self, key: Key) -> IndexPool:
        return next(each.pool for each in reversed(self._phases) if each.warmup == key[0] and each.pool.first <= key[1])

    def _put_back(self, lease: Lease) -> None:
        self._balancer.give_back(lease.replica)
        pool = self._pool_of(lease.key)
        pool.give_back(lease.index)
        if any(pool is each.pool for each in self._chain):
            self._plan_indices[lease.warmup, lease.workload].give_back(lease.plan_index)

    def _check_phase_over(self) -> None:
        if self._phase_over is None or not all(each.pool.finished for each in self._chain if not each.fills):
            return
        following = self._chain[-1].then
        if following is None or following.fills:
            over, self._phase_over = self._phase_over, None
            over()

    # ------------------------------------------------------------------ handing out

    def serve(self) -> None:
        """Hand out requests that may be sent now or soon, one request or conversation per worker in turn, so that no worker gets
        all of the last ones."""
        found: dict[str, list[Lease]] = {}
        while self._phase_over is not None and not self._closed and (given := self._next()):
            worker, leases = given
            self._workers[worker].hold(leases, self._now_ns())
            self.in_flight += 1
            self._wants.satisfied(worker, leases[0].workload)
            found.setdefault(worker, []).extend(leases)
        for worker in found:
            self._workers[worker].deliveries += 1
        for worker, leases in found.items():
            self._courier.deliver(worker, leases)

    def _next(self) -> tuple[str, list[Lease]] | None:
        """The next request with the further turns of its conversation, and its worker; None when there is none, or it may not be
        sent yet."""
        phase, now_ns = self._leasing(), self._now_ns()
        index = None if phase is None else phase.pool.peek()
        if phase is None or index is None:
            return None
        number = index - phase.pool.first
        scheduled_ns = None if phase.scheduled_ns is None else phase.begun_ns + phase.scheduled_ns[number]
        if scheduled_ns is not None and scheduled_ns > now_ns + AHEAD_NS:
            return None
        limit = phase.limit_at((now_ns - phase.begun_ns) / NS_PER_S)
        if limit is not None and self.in_flight >= limit:
            self._drop_overdue()
            self._full = True
            return None
        if self._full:
            self._full, self._room_ns = False, now_ns
        if phase.workload_of is None:
            worker, workload = self._wants.next
        else:
            worker, workload = self._workers.idlest(), phase.workload_of(number)
        return None if worker is None else (worker, self._lease(phase, workload, number, scheduled_ns))

    def _leasing(self) -> Phase | None:
        """The first phase of the chain that has requests to lease. When none has, the next one enters with the first free slot."""
        for phase in self._chain:
            if phase.pool.peek() is not None:
                return phase
        following = self._chain[-1].then
        if following is None or self._wants.next[0] is None:
            return None
        limit = following.limit_at(0.0)
        if limit is not None and self.in_flight >= limit:
            return None
        self._enter(following, self._now_ns())
        return following

    def _lease(self, phase: Phase, workload: str, number: int, scheduled_ns: int | None) -> list[Lease]:
        """Leases of the next request of this workload, which is request `number` of the phase, and of the further turns of its
        conversation."""
        plan = self._plans.get(workload)
        stage = self._stage_of(phase, number)
        allowed_ns = self._room_ns if scheduled_ns is not None and self._room_ns > scheduled_ns else None
        taken = self._take(phase, workload)
        leases: list[Lease] = []
        for (index, place), replica in zip(taken, self._balancer.choose(len(taken)), strict=True):
            first = not leases
            leases.append(
                Lease(
                    index,
                    phase.warmup,
                    workload,
                    plan.prompt(place, warmup=phase.warmup) if plan else None,
                    place,
                    follows=not first,
                    stage=stage,
                    scheduled_ns=scheduled_ns if first else None,
                    allowed_ns=allowed_ns if first else None,
                    replica=replica,
                    unasked=phase.workload_of is not None,
                )
            )
        return leases

    def _take(self, phase: Phase, workload: str) -> list[tuple[int, int]]:
        """The next request of this workload and the further turns of its conversation: (number in the run, place in the plan)."""
        plan = self._plans.get(workload)
        pool = self._plan_indices[phase.warmup, workload]
        plan_indices = pool.take_run(plan.turns_from if plan and not phase.warmup else lambda _: 1)
        indices = phase.pool.take(len(plan_indices))
        for plan_index in plan_indices[len(indices) :]:
            pool.give_back(plan_index)
        return list(zip(indices, plan_indices, strict=False))

    def _stage_of(self, phase: Phase, number: int) -> int:
        return phase.stage_of(number, (self._now_ns() - phase.begun_ns) / NS_PER_S)

    def _drop_overdue(self) -> None:
        """Drop requests whose scheduled time has come while the limit is reached. Called before a request ends."""
        phase = self.phase
        if not phase.drops or phase.scheduled_ns is None or phase.workload_of is None:
            return
        now_ns = self._now_ns()
        limit = phase.limit_at((now_ns - phase.begun_ns) / NS_PER_S)
        while limit is not None and self.in_flight >= limit and (index := phase.pool.peek()) is not None:
            number = index - phase.pool.first
            if phase.begun_ns + phase.scheduled_ns[number] > now_ns:
                return
            stage = self._stage_of(phase, number)
            for _ in self._take(phase, phase.workload_of(number)):
                phase.dropped[stage] += 1
                phase.pool.end()
        self._check_phase_over()
