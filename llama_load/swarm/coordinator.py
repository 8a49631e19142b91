"""Who sends which request and when, for one worker or fifty: phase after phase, every prompt index exactly once.

Pure bookkeeping: nothing here knows gevent, Locust or a network. Workers ask for leases as their users become free; a lease
brings its prompt, so that a worker needs no data of its own. What a lost worker had not begun goes to others, and so does a
lease that was lost on its way. In an open loop a lease says when its request is wanted, and goes out a moment before that.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field

from llama_load.metrics.evidence import LostWorker
from llama_load.swarm.leases import Key, Lease, LeaseBook
from llama_load.swarm.phases import Phase
from llama_load.units import NS_PER_S
from llama_load.workloads.prompt import Plan

# For no more than so many requests users are asked for at a time: counting a long backlog would make everything late.
MOST_AT_ONCE = 2000
# So long before it is wanted a request is leased: longer than a message is on its way, so short that few users wait for that.
AHEAD_NS = NS_PER_S // 2
# Workers say what they have begun ten times a second.
UNSAID_NS = NS_PER_S // 4


@dataclass(slots=True)
class _Hand:
    """A user that has leases: one, or those of a conversation."""

    left: int


@dataclass(slots=True)
class _Held:
    """A lease that a worker holds, with the number of the delivery that brought it, and since when it may be used."""

    lease: Lease
    delivery: int
    hand: _Hand
    from_ns: int
    is_over: bool = False  # its request has ended; its record is on its way


@dataclass(slots=True)
class _Worker:
    """What one worker holds."""

    held: dict[Key, _Held] = field(default_factory=dict)
    deliveries: int = 0
    has_left: bool = False


def _named(gone: LostWorker, key: Key) -> list[int]:
    """The list of what a lost worker may have sent that this request belongs to."""
    return gone.possibly_sent_warmup if key[0] else gone.possibly_sent


def _could_have_begun(held: Mapping[Key, _Held], begun: Set[Key], until_ns: int) -> set[Key]:
    """What of these a worker could have begun by then without having said so: any request that was to be sent by then, and the
    turn of a conversation after one that has ended or is being sent (whose answer may have come meanwhile)."""
    first: set[Key] = set()
    next_turns: set[Key] = set()
    before: dict[int, Key] = {}  # of each user (its hand): the turn before
    for key, entry in held.items():
        previous = before.get(id(entry.hand))
        before[id(entry.hand)] = key
        if previous is None or held[previous].is_over:
            if entry.from_ns <= until_ns:
                first.add(key)
        elif previous in first or previous in begun:
            next_turns.add(key)
    return first | next_turns


class Coordinator:
    """The books of a run. `deliver(worker, leases)` hands leases out, at once or later, in order; `phase_over` is called when the
    last request of a phase has ended, once a phase."""

    def __init__(
        self,
        plans: Mapping[str, Plan],
        *,
        deliver: Callable[[str, list[Lease]], None],
        phase_over: Callable[[], None],
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._plans = plans
        self._deliver = deliver
        self._phase_over = phase_over
        self._now_ns = now_ns
        self._phases: list[Phase] = []
        self._is_over = True  # the present phase; there is none yet
        self._closed = False
        self._places: defaultdict[tuple[bool, str], LeaseBook] = defaultdict(lambda: LeaseBook(None))
        self._workers: defaultdict[str, _Worker] = defaultdict(_Worker)
        self._waiting: deque[tuple[str, str, int]] = deque()  # worker, workload, how many
        self._full = False  # the next request waits for the limit
        self._room_ns = 0  # when it last stopped to
        self.in_flight = 0  # users with leases, those included whose request is not due yet
        self.lost: list[LostWorker] = []
        # Of each worker that took part and went away: when it was last heard of, and when that was noticed, ns.
        self.departures: list[tuple[int, int]] = []

    # ------------------------------------------------------------------ phases

    def begin(self, phase: Phase, begun_ns: int | None = None) -> None:
        """Lease requests of this phase from now on; its instants count from `begun_ns`, or from now."""
        phase.begun_ns = self._now_ns() if begun_ns is None else begun_ns
        earlier = [each.book.next for each in self._phases if each.warmup == phase.warmup]
        phase.book = LeaseBook(phase.total, max(earlier, default=0))
        for key, book in self._places.items():
            if key[0] == phase.warmup:  # not the rest of a conversation whose beginning was sent before
                self._places[key] = LeaseBook(None, 0 if phase.repeats else book.next)
        self._phases.append(phase)
        self._is_over = self._full = False
        self.serve()
        self._look_at_the_end()

    def close_phase(self) -> None:
        """The time of the present phase is over: it ends when everything has ended that is leased."""
        self.phase.book.close()
        self._look_at_the_end()

    @property
    def begun(self) -> bool:
        """Whether there has been a phase."""
        return bool(self._phases)

    @property
    def phase(self) -> Phase:
        """The present phase."""
        return self._phases[-1]

    @property
    def measured(self) -> list[Phase]:
        """The phases so far in which requests were measured."""
        return [phase for phase in self._phases if not phase.warmup]

    @property
    def measuring(self) -> bool:
        """Whether requests are measured now."""
        return self.begun and not self.phase.warmup

    @property
    def held(self) -> int:
        """How many leases are with workers."""
        return sum(len(worker.held) for worker in self._workers.values())

    @property
    def waiting(self) -> int:
        """How many users wait for leases."""
        return sum(count for _, _, count in self._waiting)

    @property
    def under_way(self) -> int:
        """How many users with leases have a request that is due."""
        now_ns = self._now_ns()
        held = (entry for worker in self._workers.values() for entry in worker.held.values())
        return self.in_flight - sum(1 for entry in held if entry.lease.due_ns is not None and entry.lease.due_ns > now_ns)

    def deliveries(self, worker: str) -> int:
        """How many times leases were handed to this worker."""
        return self._workers[worker].deliveries

    def close(self) -> None:
        """Hand out no more leases."""
        self._closed = True
        self._waiting.clear()

    def missing_users(self, within_ns: int) -> dict[str, int]:
        """How many more users of each workload should wait, so that all that is due within so long finds one."""
        phase = self.phase
        if phase.due_ns is None or phase.workload_of is None or self._closed or phase.book.peek() is None:
            return {}
        next_one = phase.book.next - phase.book.first
        soon = bisect_right(phase.due_ns, self._now_ns() + within_ns - phase.begun_ns, lo=next_one)
        soon = min(soon, next_one + MOST_AT_ONCE)
        if (limit := phase.limit_at(0)) is not None:
            soon = min(soon, next_one + max(0, limit - self.in_flight))
        wanted = Counter(map(phase.workload_of, range(next_one, soon)))
        for _, workload, count in self._waiting:
            wanted[workload] -= count
        return {workload: count for workload, count in wanted.items() if count > 0}

    # ------------------------------------------------------------------ what workers say

    def want(self, worker: str, workload: str, count: int) -> None:
        """So many of a worker's users could send a request (or begin a conversation) of this workload."""
        self._queue(worker, workload, count)
        self.serve()

    def reconcile(self, worker: str, delivered: int, holds: Iterable[Key], wants: Mapping[str, int]) -> None:
        """What a worker holds and how many more leases of each workload its users wait for, after `delivered` deliveries had
        reached it or were lost. What of those it does not hold was lost on its way, and goes to whoever asks next."""
        held, holds = self._workers[worker].held, set(holds)
        self._waiting = deque(entry for entry in self._waiting if entry[0] != worker)
        coming = [each.lease.workload for each in held.values() if each.delivery > delivered and not each.lease.follows]
        for workload, count in wants.items():
            self._queue(worker, workload, count - coming.count(workload))
        self.give_back(worker, [key for key, each in held.items() if each.delivery <= delivered and key not in holds])

    def over(self, worker: str, key: Key) -> None:
        """This request has ended; its record comes later. Said where others wait for that."""
        if (entry := self._workers[worker].held.get(key)) is not None:
            self._drop_what_is_due()
            self._let_go(entry)
            self.serve()

    def give_back(self, worker: str, keys: Iterable[Key]) -> None:
        """Leases that were not used, or whose request was cancelled: somebody else may have them."""
        for key in keys:
            if (entry := self._workers[worker].held.pop(key, None)) is not None:
                self._let_go(entry)
                self._put_back(entry.lease)
        self._look_at_the_end()
        self.serve()

    def counts(self, worker: str, key: Key) -> bool:
        """Whether a record of this request by this worker is the one that counts: it holds the lease, or was given up for lost
        with it and nobody has repeated the request."""
        return key in self._workers[worker].held or self._loss_of(worker, key) is not None

    def end(self, worker: str, key: Key) -> None:
        """The record of a leased request that `counts` has come."""
        if (entry := self._workers[worker].held.pop(key, None)) is not None:
            self._drop_what_is_due()
            self._let_go(entry)
            self._book_of(key).end()
            self._look_at_the_end()
            self.serve()
        elif (loss := self._loss_of(worker, key)) is not None:
            _named(loss, key).remove(key[1])

    def lose(self, worker: str, begun: Iterable[Key], heard_ns: int | None = None, *, may_return: bool = False) -> None:
        """The worker, last heard of at `heard_ns`, is gone. What it had `begun`, or could have begun without having said so yet,
        may have been sent and is not sent again; the rest goes to others. Of one that `may_return` nothing does: it would send
        it, too."""
        self._note_departure(worker, heard_ns)
        held = self._workers[worker].held
        sent = {key for key in begun if key in held}
        if may_return:
            sent = set(held)
        elif heard_ns is not None:
            sent |= _could_have_begun(held, sent, heard_ns + UNSAID_NS)
        measured, warmup = (sorted(index for is_warmup, index in sent if is_warmup == which) for which in (False, True))
        self.lost.append(LostWorker(worker, measured, len(held) - len(sent), warmup))
        for key in sent:
            self._let_go(held.pop(key))
            self._book_of(key).end()
        self._release(worker)
        self._look_at_the_end()
        self.serve()

    def leave(self, worker: str) -> None:
        """The worker has delivered everything and takes no more leases. What was on its way to it goes to others."""
        self._workers[worker].has_left = True
        self._note_departure(worker, None)
        self._release(worker)
        self._look_at_the_end()
        self.serve()

    def _note_departure(self, worker: str, heard_ns: int | None) -> None:
        if self._workers[worker].deliveries:
            now_ns = self._now_ns()
            self.departures.append((now_ns if heard_ns is None else heard_ns, now_ns))

    def _release(self, worker: str) -> None:
        """Nothing more for this worker, and back what it held."""
        self._waiting = deque(entry for entry in self._waiting if entry[0] != worker)
        held = self._workers[worker].held
        for entry in held.values():
            self._let_go(entry)
            self._put_back(entry.lease)
        held.clear()

    def _let_go(self, entry: _Held) -> None:
        """Its user has one request less before it."""
        if not entry.is_over:
            entry.is_over = True
            entry.hand.left -= 1
            self.in_flight -= not entry.hand.left

    def _queue(self, worker: str, workload: str, count: int) -> None:
        if count > 0 and not self._closed and not self._workers[worker].has_left:
            self._waiting.append((worker, workload, count))

    def _loss_of(self, worker: str, key: Key) -> LostWorker | None:
        missing = (gone for gone in self.lost if gone.worker == worker and key[1] in _named(gone, key))
        return next(missing, None)

    def _book_of(self, key: Key) -> LeaseBook:
        return next(each.book for each in reversed(self._phases) if each.warmup == key[0] and each.book.first <= key[1])

    def _put_back(self, lease: Lease) -> None:
        book = self._book_of(lease.key)
        book.give_back(lease.index)
        if book is self.phase.book:
            self._places[lease.warmup, lease.workload].give_back(lease.place)

    def _look_at_the_end(self) -> None:
        if not self._is_over and self.phase.book.finished:
            self._is_over = True
            self._phase_over()

    # ------------------------------------------------------------------ handing out

    def serve(self) -> None:
        """Hand out what may be sent now or soon, one request or conversation a worker in turn: so nobody hoards the last ones."""
        found: dict[str, list[Lease]] = {}
        while self.begun and not self._is_over and not self._closed and (leases := self._next()):
            worker, workload, count = self._waiting.popleft()
            holder, hand = self._workers[worker], _Hand(len(leases))
            now_ns, number = self._now_ns(), holder.deliveries + 1
            holder.held |= {lease.key: _Held(lease, number, hand, max(now_ns, lease.due_ns or 0)) for lease in leases}
            self.in_flight += 1
            found.setdefault(worker, []).extend(leases)
            if count > 1:
                self._waiting.append((worker, workload, count - 1))
        for worker in found:
            self._workers[worker].deliveries += 1
        for worker, leases in found.items():
            self._deliver(worker, leases)

    def _next(self) -> list[Lease]:
        """The next request with the further turns of its conversation, for whoever waits first then; empty when there is none, or
        it may not be sent yet."""
        phase, now_ns = self.phase, self._now_ns()
        index = phase.book.peek()
        if index is None:
            return []
        number = index - phase.book.first
        due_ns = None if phase.due_ns is None else phase.begun_ns + phase.due_ns[number]
        if due_ns is not None and due_ns > now_ns + AHEAD_NS:
            return []
        limit = phase.limit_at((now_ns - phase.begun_ns) / NS_PER_S)
        if limit is not None and self.in_flight >= limit:
            self._drop_what_is_due()
            self._full = True
            return []
        if self._full:
            self._full, self._room_ns = False, now_ns
        if phase.workload_of is not None:
            self._bring_forward(phase.workload_of(number))
            if not self._waiting or self._waiting[0][1] != phase.workload_of(number):
                return []
        return self._take(self._waiting[0][1], number, due_ns) if self._waiting else []

    def _bring_forward(self, workload: str) -> None:
        """Let whoever waits first for a request of this workload be the first of all."""
        place = next((place for place, entry in enumerate(self._waiting) if entry[1] == workload), 0)
        if place:
            entry = self._waiting[place]
            del self._waiting[place]
            self._waiting.appendleft(entry)

    def _take(self, workload: str, number: int, due_ns: int | None) -> list[Lease]:
        """The next request of this workload, which is the phase's so-manieth, with the further turns of its conversation."""
        phase, plan = self.phase, self._plans.get(workload)
        warmup = phase.warmup
        book = self._places[warmup, workload]
        places = book.take_run(plan.turns_from if plan and not warmup else lambda _: 1)
        indices = phase.book.take(len(places))
        for place in places[len(indices) :]:
            book.give_back(place)
        elapsed_s = (self._now_ns() - phase.begun_ns) / NS_PER_S
        stage = phase.stage_of(number, elapsed_s)
        allowed_ns = self._room_ns if due_ns is not None and self._room_ns > due_ns else None
        leases: list[Lease] = []
        for index, place in zip(indices, places, strict=False):
            prompt = plan.prompt(place, warmup=warmup) if plan else None
            first = not leases
            leases.append(
                Lease(
                    index,
                    warmup,
                    workload,
                    prompt,
                    place,
                    follows=not first,
                    stage=stage,
                    due_ns=due_ns if first else None,
                    allowed_ns=allowed_ns if first else None,
                )
            )
        return leases

    def _drop_what_is_due(self) -> None:
        """Called while the limit is reached, and before anything ends: what is due by now is too late, and is never sent."""
        phase = self.phase
        if not phase.drops or phase.due_ns is None or phase.workload_of is None:
            return
        now_ns = self._now_ns()
        limit = phase.limit_at((now_ns - phase.begun_ns) / NS_PER_S)
        while limit is not None and self.in_flight >= limit and (index := phase.book.peek()) is not None:
            number = index - phase.book.first
            due_ns = phase.begun_ns + phase.due_ns[number]
            if due_ns > now_ns:
                return
            for lease in self._take(phase.workload_of(number), number, due_ns):
                phase.dropped[lease.stage] += 1
                phase.book.end()
        self._look_at_the_end()
