"""Which request is leased next, and to whom: phases, their schedules and limits, the places in the
plans."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping

from llama_load.ground.units import NS_PER_S
from llama_load.loadgen.dispatch.leases import IndexPool, Key, Lease
from llama_load.loadgen.dispatch.ledger import Ledger
from llama_load.loadgen.dispatch.phases import Phase
from llama_load.loadgen.workloads.prompt_plan import Plan

# Lease a request this long before its scheduled time: longer than a message takes, short enough
# that few users wait.
AHEAD_NS = NS_PER_S // 2


class Assigner:
    """The requests of a run, phase after phase, every prompt index exactly once."""

    def __init__(self, plans: Mapping[str, Plan], ledger: Ledger) -> None:
        self._plans = plans
        self._ledger = ledger
        self._now_ns = ledger.now_ns
        self._phases: list[Phase] = []
        self._chain: list[
            Phase
        ] = []  # the present phase, after those whose slots it takes over
        self._plan_indices: defaultdict[tuple[bool, str], IndexPool] = defaultdict(
            lambda: IndexPool(None)
        )
        self._is_full = False  # the next request waits for the limit
        self._room_since_ns = 0  # since when there is room below the limit

    # ------------------------------------------------------------------ phases

    def begin(self, phase: Phase, begun_ns: int) -> None:
        """Requests of this phase come next. Its instants are relative to `begun_ns`."""
        self._chain.clear()
        self._enter(phase, begun_ns)
        self._is_full = False

    def _enter(self, phase: Phase, begun_ns: int) -> None:
        phase.begun_ns = begun_ns
        first = 0
        for before in self._phases:
            if before.warmup == phase.warmup:
                first = max(first, before.pool.next)
        phase.pool = IndexPool(phase.total, first)

        for key, pool in self._plan_indices.items():
            # not the rest of a conversation whose beginning was sent before
            if key[0] == phase.warmup:
                first_of_plan = 0 if phase.repeats else pool.next
                self._plan_indices[key] = IndexPool(None, first_of_plan)
        self._phases.append(phase)
        self._chain.append(phase)

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
    def has_ended(self) -> bool:
        """Whether the present phase has ended, and none follows that takes over its slots."""
        if not all(phase.pool.finished for phase in self._chain if not phase.fills):
            return False
        following = self._chain[-1].then
        return following is None or following.fills

    @property
    def overdue(self) -> int:
        """How many requests of a schedule should have been sent and wait for the limit of requests
        in flight, or for users."""
        if not self.has_begun or self.phase.scheduled_ns is None:
            return 0
        due = bisect_right(
            self.phase.scheduled_ns, self._now_ns() - self.phase.begun_ns
        )
        return max(0, due - self.phase.pool.taken)

    # ------------------------------------------------------------------ ends

    def end(self, key: Key) -> None:
        """This request has ended, and is not repeated."""
        self._pool_of(key).ended += 1

    def put_back(self, lease: Lease) -> None:
        """Another user may get this request."""
        self._ledger.balancer.give_back(lease.replica, follows=lease.follows)
        pool = self._pool_of(lease.key)
        pool.give_back(lease.index)
        if any(pool is phase.pool for phase in self._chain):
            self._plan_indices[lease.warmup, lease.workload].give_back(lease.plan_index)

    def drop_overdue(self) -> None:
        """Drop requests whose scheduled time has come while the limit is reached. To be called
        before a request ends."""
        phase = self.phase
        if not phase.drops or phase.scheduled_ns is None or phase.workload_of is None:
            return
        now_ns = self._now_ns()
        limit = phase.limit_at((now_ns - phase.begun_ns) / NS_PER_S)
        while (
            limit is not None
            and self._ledger.in_flight >= limit
            and (index := phase.pool.peek()) is not None
        ):
            number = index - phase.pool.first
            if phase.begun_ns + phase.scheduled_ns[number] > now_ns:
                return
            stage = self._stage_of(phase, number)
            for _ in self._next_indices(phase, phase.workload_of(number)):
                phase.dropped[stage] += 1
                phase.pool.ended += 1

    def _pool_of(self, key: Key) -> IndexPool:
        warmup, index = key
        for phase in reversed(self._phases):
            if phase.warmup == warmup and phase.pool.first <= index:
                return phase.pool
        raise LookupError(f"no phase has request {key}")

    # ------------------------------------------------------------------ the next request

    def next_leases(self) -> tuple[str, list[Lease]] | None:
        """The next request with the further turns of its conversation, and its worker; None if none
        may be sent now."""
        phase = self._leasing()
        if phase is None:
            return None
        index = phase.pool.peek()
        if index is None:
            return None

        now_ns = self._now_ns()
        number = index - phase.pool.first
        scheduled_ns = None
        if phase.scheduled_ns is not None:
            scheduled_ns = phase.begun_ns + phase.scheduled_ns[number]
            if scheduled_ns > now_ns + AHEAD_NS:
                return None

        limit = phase.limit_at((now_ns - phase.begun_ns) / NS_PER_S)
        if limit is not None and self._ledger.in_flight >= limit:
            self.drop_overdue()
            self._is_full = True
            return None
        if self._is_full:
            self._is_full = False
            self._room_since_ns = now_ns

        if phase.workload_of is None:
            worker, workload = self._ledger.wants.next
        else:
            worker = self._ledger.workers.idlest()
            workload = phase.workload_of(number)
        if worker is None:
            return None
        return worker, self._leases(phase, workload, number, scheduled_ns)

    def _leasing(self) -> Phase | None:
        """The first phase of the chain that has requests to lease. When none has, the next one
        enters with the first free slot."""
        for phase in self._chain:
            if phase.pool.peek() is not None:
                return phase
        following = self._chain[-1].then
        if following is None or self._ledger.wants.next[0] is None:
            return None
        limit = following.limit_at(0.0)
        if limit is not None and self._ledger.in_flight >= limit:
            return None
        self._enter(following, self._now_ns())
        return following

    def _leases(
        self, phase: Phase, workload: str, number: int, scheduled_ns: int | None
    ) -> list[Lease]:
        """Leases of request `number` of the phase, the next one of this workload, and of the
        further turns of its conversation."""
        plan = self._plans.get(workload)
        stage = self._stage_of(phase, number)
        allowed_ns = None
        if scheduled_ns is not None and self._room_since_ns > scheduled_ns:
            allowed_ns = self._room_since_ns

        indices = self._next_indices(phase, workload)
        if (
            phase.by_conversation
            and plan is not None
            and indices
            and not plan.begins_at(indices[0][1])
        ):
            # the rest of a conversation that has arrived before
            scheduled_ns = allowed_ns = None

        leases: list[Lease] = []
        replicas = self._ledger.balancer.choose(len(indices))
        for (index, place), replica in zip(indices, replicas, strict=True):
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

    def _next_indices(self, phase: Phase, workload: str) -> list[tuple[int, int]]:
        """The next request of this workload and the further turns of its conversation: (number in
        the run, place in the plan)."""
        plan = self._plans.get(workload)
        pool = self._plan_indices[phase.warmup, workload]
        plan_indices = pool.take_run(
            plan.turns_from if plan and not phase.warmup else lambda _: 1
        )
        indices = phase.pool.take(len(plan_indices))
        for plan_index in plan_indices[len(indices) :]:
            pool.give_back(plan_index)
        return list(zip(indices, plan_indices, strict=False))

    def _stage_of(self, phase: Phase, number: int) -> int:
        return phase.stage_of(number, (self._now_ns() - phase.begun_ns) / NS_PER_S)
