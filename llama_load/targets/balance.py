"""Which of several replicas gets the next request."""

from __future__ import annotations

from collections.abc import Sequence

from llama_load.targets.target import Target

ROUND_ROBIN, LEAST_IN_FLIGHT = BALANCES = ("round-robin", "least-in-flight")


class Balancer:
    """Chooses targets: one after the other, or (least in flight) the one with the fewest requests under way."""

    def __init__(self, targets: Sequence[Target], how: str = ROUND_ROBIN) -> None:
        self._targets = tuple(targets)
        self._least = how == LEAST_IN_FLIGHT
        self._next = 0
        self._in_flight = dict.fromkeys((target.address for target in targets), 0)

    def choose(self) -> Target:
        """The target of the next request; `ended` must be called for it."""
        turn = self._targets[self._next :] + self._targets[: self._next]
        target = min(turn, key=lambda candidate: self._in_flight[candidate.address]) if self._least else turn[0]
        self._next = (self._targets.index(target) + 1) % len(self._targets)
        self._in_flight[target.address] += 1
        return target

    def ended(self, target: Target) -> None:
        """A request to this target is over, or was never sent."""
        self._in_flight[target.address] -= 1
