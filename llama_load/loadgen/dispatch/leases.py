"""Leases of requests, from one pool for all workers: every request is sent once, at any number of
users and workers.

Indices are leased on demand. With a static split, 8 users on 5 workers would take 53 % longer than
one client, and with fewer users than workers some requests would never be sent.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass

from llama_load.servers.prompt import Prompt

Key = tuple[bool, int]  # identifies a request of the run: (warm-up?, index)

# The most users per process for a schedule that the server cannot keep up with; then requests are
# late, and the verdict reports it.
MOST_USERS_A_PROCESS = 5000


@dataclass(frozen=True, slots=True)
class Lease:
    """Permission to send one request of a phase, with its prompt if the workload has prompts.

    `index` counts the run's requests, `plan_index` those of its workload (the same, unless a run
    has several). `follows`: it is a further turn of the previous lease's conversation.
    `scheduled_ns`: when the request is scheduled (None: now); `allowed_ns`: when the limit of
    requests in flight allowed it, if later. `replica`: the server's number among the run's targets.
    `unasked`: no user waits for it; the worker starts one if none is free.
    """

    index: int
    warmup: bool
    workload: str
    prompt: Prompt | None = None
    plan_index: int = 0
    follows: bool = False
    stage: int = 0
    scheduled_ns: int | None = None
    allowed_ns: int | None = None
    replica: int = 0
    unasked: bool = False

    @property
    def key(self) -> Key:
        """See `Key`."""
        return self.warmup, self.index


class IndexPool:
    """The prompt indices of one phase: first…first+total-1, or without end if `total` is None."""

    def __init__(self, total: int | None, first: int = 0) -> None:
        self.first = first
        self.total = total
        self.ended = 0  # leased requests that have ended, successfully or not
        self.next = first  # the lowest that was never leased
        self._returned: list[int] = []  # ascending
        self.is_closed = False  # its time is over

    def peek(self) -> int | None:
        """The lowest free index; None when all are leased."""
        if self.is_closed:
            return None
        if self._returned:
            return self._returned[0]
        return None if self._all_given else self.next

    def take(self, count: int) -> list[int]:
        """Take up to `count` free indices, lowest first; empty when all are leased."""
        if self.is_closed:
            return []
        batch = self._returned[:count]
        del self._returned[:count]
        while len(batch) < count and not self._all_given:
            batch.append(self.next)
            self.next += 1
        return batch

    def take_run(self, length: Callable[[int], int]) -> list[int]:
        """Take the lowest free index, and the `length(index) - 1` indices after it that belong to
        it, if they are free."""
        run = self.take(1)
        for _ in range(length(run[0]) - 1 if run else 0):
            following = run[-1] + 1
            if following == self.next and not self._all_given:
                self.next += 1
            elif self._returned[:1] == [following]:  # free, and now the lowest one
                del self._returned[0]
            else:
                break
            run.append(following)
        return run

    def give_back(self, index: int) -> None:
        """Return the index of a request that its holder will not send: another may lease it."""
        insort(self._returned, index)

    @property
    def taken(self) -> int:
        """How many are leased or have ended."""
        return self.next - self.first - len(self._returned)

    def close(self) -> None:
        """Lease no more; only the requests leased now will end."""
        self.is_closed = True

    @property
    def _all_given(self) -> bool:
        return self.is_closed or (
            self.total is not None and self.next >= self.first + self.total
        )

    @property
    def finished(self) -> bool:
        """Whether every request of this phase has ended."""
        if self.is_closed:
            return self.ended >= self.taken
        return self.total is not None and self.ended >= self.total
