"""Who may send which request: one book for the whole swarm, exact at any number of users and workers.

Indices are leased in small batches on demand. A static split would be exact in set but not in time: 8 users on 5 workers
take 53 % longer than one client, and with fewer users than workers a stripe is never sent.
"""

from __future__ import annotations

from collections.abc import Callable


class LeaseBook:
    """The prompt indices of one phase (warm-up, measurement): 0…total-1, or without end if `total` is None."""

    def __init__(self, total: int | None) -> None:
        self.total = total
        self.ended = 0
        self._next = 0
        self._returned: list[int] = []

    def take(self, count: int) -> list[int]:
        """Up to `count` indices that nobody holds, lowest first; empty when all are leased."""
        batch = sorted(self._returned)[:count]
        self._returned = sorted(self._returned)[count:]
        while len(batch) < count and (self.total is None or self._next < self.total):
            batch.append(self._next)
            self._next += 1
        return batch

    def take_run(self, length: Callable[[int], int]) -> list[int]:
        """The lowest index that nobody holds, and the `length(index) - 1` after it that belong to it, if nobody holds them."""
        run = self.take(1)
        for _ in range(length(run[0]) - 1 if run else 0):
            following = run[-1] + 1
            if following in self._returned:
                self._returned.remove(following)
            elif following == self._next and (self.total is None or self._next < self.total):
                self._next += 1
            else:
                break
            run.append(following)
        return run

    def end(self) -> None:
        """A leased request has ended well or badly."""
        self.ended += 1

    def give_back(self, index: int) -> None:
        """A leased request will not be carried to its end by its holder: somebody else may send it."""
        self._returned.append(index)

    @property
    def finished(self) -> bool:
        """Whether every request of this phase has ended."""
        return self.total is not None and self.ended >= self.total
