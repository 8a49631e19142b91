"""Which of several replicas gets the next request."""

from __future__ import annotations

import time
from collections.abc import Sequence

from llama_load.targets.target import Target
from llama_load.wire.address import Address

ROUND_ROBIN, LEAST_IN_FLIGHT = BALANCES = ("round-robin", "least-in-flight")


# A server that refuses at once always has the fewest requests in flight. So long it gets none, if another is there.
REFUSED_FOR_S = 1.0


class Balancer:
    """Chooses targets: one after the other, or (least in flight) the one with the fewest requests under way.

    Taking turns goes on whatever happens, so that a replica that is gone shows; least in flight leaves one that refuses
    connections alone for a second.
    """

    def __init__(self, targets: Sequence[Target], how: str = ROUND_ROBIN) -> None:
        self._targets = tuple(targets)
        self._least = how == LEAST_IN_FLIGHT
        self._next = 0
        self._refused_s: dict[Address, float] = {}
        self._in_flight = dict.fromkeys((target.address for target in targets), 0)

    def choose(self) -> Target:
        """The target of the next request; `ended` must be called for it."""
        turn = self._targets[self._next :] + self._targets[: self._next]
        target = min(turn, key=self._burden) if self._least else turn[0]
        self._next = (self._targets.index(target) + 1) % len(self._targets)
        self._in_flight[target.address] += 1
        return target

    def ended(self, target: Target, *, refused: bool = False) -> None:
        """A request to this target is over, or was never sent; `refused`: there was no connection."""
        self._in_flight[target.address] -= 1
        if refused:
            self._refused_s[target.address] = time.monotonic()

    def _burden(self, target: Target) -> tuple[bool, int]:
        refused = time.monotonic() - self._refused_s.get(target.address, -REFUSED_FOR_S) < REFUSED_FOR_S
        return refused, self._in_flight[target.address]
