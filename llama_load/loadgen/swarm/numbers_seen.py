"""Which batches of a worker have arrived, in memory that does not grow with the run."""

from __future__ import annotations


class NumbersSeen:
    """Numbers from 1 on, which arrive nearly in order: all up to a low-water mark, and the few
    beyond it."""

    def __init__(self) -> None:
        self._up_to = 0
        self._beyond: set[int] = set()

    def add(self, number: int) -> None:
        """This number has arrived."""
        if number > self._up_to:
            self._beyond.add(number)
        while self._up_to + 1 in self._beyond:
            self._up_to += 1
            self._beyond.remove(self._up_to)

    def __contains__(self, number: int) -> bool:
        return number <= self._up_to or number in self._beyond

    def __len__(self) -> int:
        return self._up_to + len(self._beyond)
