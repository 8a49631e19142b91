"""Who sends which request, for one worker or fifty: warm-up before measurement, every prompt index exactly once.

Pure bookkeeping: nothing here knows gevent, Locust or a network. Workers ask for leases as their users become free; a lease
brings its prompt, so that a worker needs no data of its own. What a lost worker had not begun goes to others, and so does a
lease that was lost on its way.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from llama_load.metrics.verdict import LostWorker
from llama_load.swarm.leases import LeaseBook
from llama_load.workloads.prompt import Plan, Prompt

Key = tuple[bool, int]  # what tells a request from all others of the run: (warm-up?, place in the plan)


@dataclass(frozen=True, slots=True)
class Lease:
    """Permission to send one request of a phase, and its prompt if the workload brings one.

    `index` counts the run's requests, `place` those of its workload (the same, unless a run has several). `follows` says that it
    is a further turn of the conversation that the lease before it is of.
    """

    index: int
    warmup: bool
    workload: str
    prompt: Prompt | None = None
    place: int = 0
    follows: bool = False

    @property
    def key(self) -> Key:
        """See `Key`."""
        return self.warmup, self.index


@dataclass(slots=True)
class _Worker:
    """What one worker holds, each lease with the number of the delivery that brought it."""

    held: dict[Key, tuple[Lease, int]] = field(default_factory=dict)
    deliveries: int = 0
    has_left: bool = False


class Coordinator:
    """The books of a run. `deliver(worker, leases)` hands leases out, at once or later, in order; `warmed_up` is called when the
    last warm-up request has ended, and `measure` is wanted then; `finished` when the last measured one has."""

    def __init__(
        self,
        plans: Mapping[str, Plan],
        warmup: LeaseBook,
        measured: LeaseBook,
        *,
        deliver: Callable[[str, list[Lease]], None],
        warmed_up: Callable[[], None],
        finished: Callable[[], None],
    ) -> None:
        self._plans = plans
        self._warmup = warmup
        self._measured = measured
        self._deliver = deliver
        self._warmed_up = warmed_up
        self._finished = finished
        self._warm = False
        self._closed = False
        self._places: defaultdict[tuple[bool, str], LeaseBook] = defaultdict(lambda: LeaseBook(None))
        self._workers: defaultdict[str, _Worker] = defaultdict(_Worker)
        self._waiting: deque[tuple[str, str, int]] = deque()  # worker, workload, how many
        self.measuring = False
        self.lost: list[LostWorker] = []

    @property
    def book(self) -> LeaseBook:
        """The book of the present phase."""
        return self._measured if self.measuring else self._warmup

    @property
    def held(self) -> int:
        """How many leases are with workers."""
        return sum(len(worker.held) for worker in self._workers.values())

    def deliveries(self, worker: str) -> int:
        """How many times leases were handed to this worker."""
        return self._workers[worker].deliveries

    def open(self) -> None:
        """Begin: with the measurement, if there is no warm-up."""
        self._look_at_the_end()

    def measure(self) -> None:
        """The warm-up is over and whatever was to be done then is done: from now on leases are for measured requests."""
        self.measuring = True
        self._serve()

    def close(self) -> None:
        """Hand out no more leases."""
        self._closed = True
        self._waiting.clear()

    def want(self, worker: str, workload: str, count: int) -> None:
        """So many of a worker's users could send a request (or begin a conversation) of this workload."""
        self._queue(worker, workload, count)
        self._serve()

    def reconcile(self, worker: str, delivered: int, holds: Iterable[Key], wants: Mapping[str, int]) -> None:
        """What a worker holds and how many more leases of each workload its users wait for, after `delivered` deliveries had
        reached it or were lost. What of those it does not hold was lost on its way, and goes to whoever asks next."""
        held, holds = self._workers[worker].held, set(holds)
        self._waiting = deque(entry for entry in self._waiting if entry[0] != worker)
        coming = [lease.workload for lease, number in held.values() if number > delivered and not lease.follows]
        for workload, count in wants.items():
            self._queue(worker, workload, count - coming.count(workload))
        self.give_back(worker, [key for key, (_, number) in held.items() if number <= delivered and key not in holds])

    def give_back(self, worker: str, keys: Iterable[Key]) -> None:
        """Leases that were not used, or whose request was cancelled: somebody else may have them."""
        for key in keys:
            if (entry := self._workers[worker].held.pop(key, None)) is not None:
                self._put_back(entry[0])
        self._serve()

    def counts(self, worker: str, key: Key) -> bool:
        """Whether a record of this request by this worker is the one that counts: it holds the lease, or was given up for lost
        with it and nobody has repeated the request."""
        return key in self._workers[worker].held or self._loss_of(worker, key) is not None

    def end(self, worker: str, key: Key) -> None:
        """The record of a leased request that `counts` has come."""
        if self._workers[worker].held.pop(key, None) is not None:
            self._book_of(key).end()
            self._look_at_the_end()
        elif (loss := self._loss_of(worker, key)) is not None:
            loss.possibly_sent.remove(key[1])

    def lose(self, worker: str, begun: Iterable[Key]) -> None:
        """The worker is gone, perhaps for a while. What it had `begun` may have been sent and is not sent again; the rest goes to
        others."""
        held = self._workers[worker].held
        sent = {key for key in begun if key in held}
        self.lost.append(LostWorker(worker, sorted(index for warmup, index in sent if not warmup)))
        for key in sent:
            del held[key]
            self._book_of(key).end()
        self._release(worker)
        self._look_at_the_end()
        self._serve()

    def leave(self, worker: str) -> None:
        """The worker has delivered everything and takes no more leases. What was on its way to it goes to others."""
        self._workers[worker].has_left = True
        self._release(worker)
        self._serve()

    def _release(self, worker: str) -> None:
        """Nothing more for this worker, and back what it held."""
        self._waiting = deque(entry for entry in self._waiting if entry[0] != worker)
        held = self._workers[worker].held
        for lease, _ in held.values():
            self._put_back(lease)
        held.clear()

    def _queue(self, worker: str, workload: str, count: int) -> None:
        if count > 0 and not self._closed and not self._workers[worker].has_left:
            self._waiting.append((worker, workload, count))

    def _loss_of(self, worker: str, key: Key) -> LostWorker | None:
        missing = (gone for gone in self.lost if gone.worker == worker and not key[0] and key[1] in gone.possibly_sent)
        return next(missing, None)

    def _book_of(self, key: Key) -> LeaseBook:
        return self._warmup if key[0] else self._measured

    def _put_back(self, lease: Lease) -> None:
        self._book_of(lease.key).give_back(lease.index)
        self._places[lease.warmup, lease.workload].give_back(lease.place)

    def _take(self, workload: str) -> list[Lease]:
        """The next request of this workload with the further turns of its conversation; empty when none is left."""
        plan, warmup = self._plans.get(workload), not self.measuring
        book = self._places[warmup, workload]
        places = book.take_run(plan.turns_from if plan and not warmup else lambda _: 1)
        indices = self.book.take(len(places))
        for place in places[len(indices) :]:
            book.give_back(place)
        return [
            Lease(index, warmup, workload, plan.prompt(place, warmup=warmup) if plan else None, place, follows=number > 0)
            for number, (index, place) in enumerate(zip(indices, places, strict=False))
        ]

    def _look_at_the_end(self) -> None:
        if self._warmup.finished and not self._warm:
            self._warm = True
            self._warmed_up()
        elif self.measuring and self._measured.finished:
            self._finished()

    def _serve(self) -> None:
        """Hand out what there is, one request or conversation a worker in turn: so nobody hoards the last ones."""
        found: dict[str, list[Lease]] = {}
        while self._waiting and not self._closed and (leases := self._take(self._waiting[0][1])):
            worker, workload, count = self._waiting.popleft()
            holder = self._workers[worker]
            holder.held |= {lease.key: (lease, holder.deliveries + 1) for lease in leases}
            found.setdefault(worker, []).extend(leases)
            if count > 1:
                self._waiting.append((worker, workload, count - 1))
        for worker in found:
            self._workers[worker].deliveries += 1
        for worker, leases in found.items():
            self._deliver(worker, leases)
