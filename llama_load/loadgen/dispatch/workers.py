"""The leases that the workers of a run hold, as the dispatcher knows them, and how many of their
users wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from llama_load.loadgen.dispatch.leases import MOST_USERS_A_PROCESS, Key, Lease
from llama_load.run_folder.observed.losses import LostWorker

# The heap of `Workers` is dropped when it has this many entries, and this many more for each
# worker.
LEAST_HEAP = 64
STALE = 8


@dataclass(slots=True)
class Holder:
    """A user that has leases: one, or those of a conversation. `replica` gets its first request;
    `left` are not over."""

    left: int
    worker: WorkerLeases
    replica: int


@dataclass(slots=True)
class HeldLease:
    """A lease that a worker holds, with the number of its delivery, and from when on it may be
    used."""

    lease: Lease
    delivery: int
    holder: Holder
    from_ns: int
    has_ended: bool = False  # its request has ended; its record is on its way
    is_open: bool = False  # its worker says that a task holds the record open
    is_counted: bool = False  # its phase does not wait for the record


@dataclass(slots=True)
class WorkerLeases:
    """The leases of one worker, and its state."""

    leases: dict[Key, HeldLease] = field(default_factory=dict)
    deliveries: int = 0  # how many times leases were handed to it
    holders: int = 0  # users with leases
    turn: int = 0  # when it last got an arrival: a smaller number is longer ago
    name: str = ""
    changed: Callable[[WorkerLeases], None] = lambda _: (
        None
    )  # `holders`, `turn` or `is_ready` has
    is_ready: bool = False  # it takes arrivals
    is_gone: bool = False  # lost, perhaps for a while, or it has left
    has_left: bool = False
    # requests that it had in flight when it was lost, and still has after its return
    strays: set[Key] = field(default_factory=set)

    def hold(self, leases: list[Lease], now_ns: int) -> None:
        """Give these leases to one of its users, with the next delivery."""
        holder = Holder(len(leases), self, leases[0].replica)
        number = self.deliveries + 1
        for lease in leases:
            from_ns = max(now_ns, lease.scheduled_ns or 0)
            self.leases[lease.key] = HeldLease(lease, number, holder, from_ns)
        self.holders += 1
        self.changed(self)

    def let_go(self) -> None:
        """One of its users has no lease any more."""
        self.holders -= 1
        self.changed(self)


class Workers:
    """The leases of each worker, by name; an unknown worker has none."""

    def __init__(self) -> None:
        self._by_name: dict[str, WorkerLeases] = {}
        self._turns = 0
        # For `idlest`, once called: (holders, turn, name), also outdated ones. Looking at 500
        # workers takes 50 us.
        self._heap: list[tuple[int, int, str]] | None = None

    def __getitem__(self, worker: str) -> WorkerLeases:
        worker_leases = self._by_name.get(worker)
        if worker_leases is None:
            worker_leases = WorkerLeases(name=worker, changed=self._note)
            self._by_name[worker] = worker_leases
        return worker_leases

    def _note(self, worker: WorkerLeases) -> None:
        if self._heap is None:
            return

        most = LEAST_HEAP + STALE * len(self._by_name)
        if len(self._heap) > most:  # nothing was taken from it
            self._heap = None
        else:
            heappush(self._heap, (worker.holders, worker.turn, worker.name))

    @property
    def leases(self) -> Iterator[HeldLease]:
        """Everything that is leased."""
        for worker in self._by_name.values():
            yield from worker.leases.values()

    @property
    def all_there(self) -> bool:
        """Whether every worker that is expected takes arrivals, or is gone."""
        return all(
            worker.is_ready or worker.is_gone for worker in self._by_name.values()
        )

    def idlest(self) -> str | None:
        """The worker for the next arrival: the one with the fewest requests; of several, the one
        that waited longest."""
        if self._heap is None:
            self._heap = [
                (worker.holders, worker.turn, worker.name)
                for worker in self._by_name.values()
            ]
            heapify(self._heap)
        while self._heap:
            holders, turn, name = self._heap[0]
            worker = self._by_name[name]
            if (holders, turn) == (worker.holders, worker.turn) and worker.is_ready:
                break
            heappop(self._heap)
        else:
            return None
        if holders >= MOST_USERS_A_PROCESS:
            return None
        self._turns += 1
        worker.turn = self._turns
        self._note(worker)
        return name


class Wants:
    """How many users wait for leases, by worker and workload, in the order in which they get
    them."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], int] = {}

    @property
    def count(self) -> int:
        """How many users wait, in all."""
        return sum(self._waiting.values())

    @property
    def next(self) -> tuple[str | None, str]:
        """Worker and workload of the next user; no worker if none waits."""
        return next(iter(self._waiting), (None, ""))

    def add(self, worker: str, workload: str, count: int) -> None:
        """This many more users wait there."""
        if count > 0:
            self._waiting[worker, workload] = (
                self._waiting.get((worker, workload), 0) + count
            )

    def satisfied(self, worker: str, workload: str) -> None:
        """One user got its lease; the users of other workers are next."""
        if (count := self._waiting.pop((worker, workload), 0)) > 1:
            self._waiting[worker, workload] = count - 1

    def forget(self, worker: str) -> None:
        """Forget the waiting users of this worker."""
        self._waiting = {
            key: count for key, count in self._waiting.items() if key[0] != worker
        }

    def clear(self) -> None:
        """Forget all waiting users."""
        self._waiting.clear()


def possibly_sent(lost: LostWorker, key: Key) -> list[int]:
    """The lost worker's list of possibly sent requests that this request belongs to: warm-up or
    measured."""
    return lost.possibly_sent_warmup if key[0] else lost.possibly_sent


@dataclass(slots=True)
class _TurnsBefore:
    """The turns of a conversation that the next ones wait for: its last own turn, and after it the
    last one of each sub-agent."""

    own: Key | None = None
    agents: dict[str, Key] = field(default_factory=dict)

    def of(self, key: Key, agent: str | None) -> list[Key]:
        """The turns that this one waits for. It is the last one of its (sub-)agent then."""
        waits_for = [self.own] if self.own is not None else []
        if agent is not None:
            if agent in self.agents:
                waits_for = [self.agents[agent]]
            self.agents[agent] = key
        else:
            waits_for = list(self.agents.values()) or waits_for
            self.own = key
            self.agents.clear()
        return waits_for


def could_have_begun(
    leases: Mapping[Key, HeldLease], begun: Set[Key], until_ns: int
) -> set[Key]:
    """The requests that a worker could have begun by `until_ns` without reporting it: those that
    could be sent by then, and in a conversation the turns after those that have ended or may be in
    flight (their answers may have arrived)."""
    first: set[Key] = set()
    next_turns: set[Key] = set()
    before: dict[int, _TurnsBefore] = {}  # by holder
    for key, entry in leases.items():
        prompt = entry.lease.prompt
        turns = before.setdefault(id(entry.holder), _TurnsBefore())
        agent = None if prompt is None else prompt.agent
        open_ = [turn for turn in turns.of(key, agent) if not leases[turn].has_ended]
        if not open_:
            if entry.from_ns <= until_ns:
                first.add(key)
        elif all(turn in first or turn in begun for turn in open_):
            next_turns.add(key)
    return first | next_turns
