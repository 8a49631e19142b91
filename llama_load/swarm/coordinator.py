"""Who sends which request, for one worker or fifty: warm-up before measurement, every prompt index exactly once.

Pure bookkeeping: nothing here knows gevent, Locust or a network. Workers ask for leases as their users become free; a lease
brings its prompt, so that a worker needs no data of its own. What a lost worker had not begun goes to others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from llama_load.metrics.verdict import LostWorker
from llama_load.swarm.leases import LeaseBook
from llama_load.workloads.prompt import Plan, Prompt

Key = tuple[bool, int]  # what tells a request from all others of the run: (warm-up?, place in the plan)


@dataclass(frozen=True, slots=True)
class Lease:
    """Permission to send one request of a phase: its place in the plan and its prompt, if the workload brings one."""

    index: int
    warmup: bool
    workload: str
    prompt: Prompt | None = None

    @property
    def key(self) -> Key:
        """See `Key`."""
        return self.warmup, self.index


class Coordinator:
    """The books of a run. `deliver(worker, leases)` hands leases out, at once or later; `warmed_up` is called when the last
    warm-up request has ended, and `measure` is wanted then; `finished` when the last measured one has."""

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
        self._held: dict[str, dict[Key, Lease]] = {}
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
        return sum(map(len, self._held.values()))

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
        """A worker's users could send so many requests of this workload."""
        self._held.setdefault(worker, {})
        if not self._closed and count > 0:
            self._waiting.append((worker, workload, count))
            self._serve()

    def give_back(self, worker: str, keys: Iterable[Key]) -> None:
        """Leases that were not used, or whose request was cancelled: somebody else may have them."""
        for key in keys:
            if self._held.get(worker, {}).pop(key, None) is not None:
                self._book_of(key).give_back(key[1])
        self._serve()

    def counts(self, worker: str, key: Key) -> bool:
        """Whether a record of this request by this worker is the one that counts: it holds the lease, or was given up for lost
        with it and nobody has repeated the request."""
        return key in self._held.get(worker, {}) or self._loss_of(worker, key) is not None

    def end(self, worker: str, key: Key) -> None:
        """The record of a leased request that `counts` has come."""
        if self._held.get(worker, {}).pop(key, None) is not None:
            self._book_of(key).end()
            self._look_at_the_end()
        elif (loss := self._loss_of(worker, key)) is not None:
            loss.possibly_sent.remove(key[1])

    def lose(self, worker: str, begun: Iterable[Key]) -> None:
        """The worker is gone. What it had `begun` may have been sent and is not sent again; the rest goes to others."""
        held = self._held.pop(worker, {})
        self._waiting = deque(entry for entry in self._waiting if entry[0] != worker)
        sent = {key for key in begun if key in held}
        self.lost.append(LostWorker(worker, sorted(index for warmup, index in sent if not warmup)))
        for key in held:
            if key in sent:
                self._book_of(key).end()
            else:
                self._book_of(key).give_back(key[1])
        self._look_at_the_end()
        self._serve()

    def _loss_of(self, worker: str, key: Key) -> LostWorker | None:
        missing = (gone for gone in self.lost if gone.worker == worker and not key[0] and key[1] in gone.possibly_sent)
        return next(missing, None)

    def _book_of(self, key: Key) -> LeaseBook:
        return self._warmup if key[0] else self._measured

    def _look_at_the_end(self) -> None:
        if self._warmup.finished and not self._warm:
            self._warm = True
            self._warmed_up()
        elif self.measuring and self._measured.finished:
            self._finished()

    def _serve(self) -> None:
        """Hand out what there is, one lease a worker in turn: so nobody hoards the last ones."""
        found: dict[str, list[Lease]] = {}
        while self._waiting and not self._closed and (taken := self.book.take(1)):
            worker, workload, count = self._waiting.popleft()
            plan = self._plans.get(workload)
            warmup = not self.measuring
            lease = Lease(taken[0], warmup, workload, plan.prompt(taken[0], warmup=warmup) if plan else None)
            self._held[worker][lease.key] = lease
            found.setdefault(worker, []).append(lease)
            if count > 1:
                self._waiting.append((worker, workload, count - 1))
        for worker, leases in found.items():
            self._deliver(worker, leases)
