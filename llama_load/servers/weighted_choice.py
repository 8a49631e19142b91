"""Which of several models or adapters a request gets: by weight, drawn from the run's seed."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

# Shares of a draw are whole numbers with at most this sum: 0.1 % is the finest share.
MOST_SHARES = 1000

_WEIGHT = re.compile(r"\d{1,6}(\.\d{1,6})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class WeightedChoice:
    """Names with whole-number shares, and the seed of the draws. Without names, nothing is chosen.

    Every block of as many requests of a workload as there are shares has each name as often as its
    share, in an order drawn from the seed, the workload and the block. So the number of requests of
    a name is as configured (3 of 4, not 3 of 4 on average), the choice does not coincide with other
    rotations (tasks of a mixture, replicas), and it is the same at any number of workers, because
    it depends on the place in the plan alone.
    """

    names: tuple[str, ...] = ()
    shares: tuple[int, ...] = ()
    seed: int = 0

    def of(self, workload: str, place: int, *, warmup: bool = False) -> str | None:
        """The name for the request at this place of a workload's plan.

        Warm-up requests take the names in turn.
        """
        if len(self.names) < 2:
            return next(iter(self.names), None)
        if warmup:
            return self.names[place % len(self.names)]
        block, number = divmod(place, sum(self.shares))
        names = _shuffled(self.names, self.shares, f"{self.seed} {workload} {block}")
        return names[number]

    def described(self) -> str:
        """Names with their shares of the requests: `a 75 %, b 25 %`."""
        total = sum(self.shares)
        parts = []
        for name, share in zip(self.names, self.shares, strict=True):
            parts.append(f"{name} {100 * share / total:.3g} %")
        return ", ".join(parts)


ONE_FOR_ALL = WeightedChoice()


@lru_cache(maxsize=64)
def _shuffled(names: tuple[str, ...], shares: tuple[int, ...], seed: str) -> list[str]:
    return random.Random(seed).sample(names, sum(shares), counts=shares)


def parse_choice(
    given: str, flag: str, seed: int, *, check: Callable[[str], str] = str
) -> WeightedChoice:
    """`a=3,b=1`, or `a,b` with equal shares. ValueError has the message.

    `check` returns a name, or raises ValueError with what is wrong with it.
    """
    weights: dict[str, Fraction] = {}
    try:
        for part in given.split(","):
            name, weight = _parted_weight(part.strip())
            name = check(name)
            if name in weights:
                raise ValueError(f"{name!r} is there twice")
            weights[name] = weight
        return WeightedChoice(tuple(weights), _whole(list(weights.values())), seed)
    except ValueError as error:
        text = (
            f"{flag} must be one or more names separated by commas, with weights such as "
            "a=3,b=1 if they are not equal"
        )
        raise ValueError(f"{text}, got {given!r}: {error}") from None


def _parted_weight(part: str) -> tuple[str, Fraction]:
    name, has_weight, weight = part.rpartition("=")
    if not has_weight:
        name = part
        weight = "1"
    name = name.strip()
    weight = weight.strip()

    if not name:
        raise ValueError("a name is missing")
    if not _WEIGHT.fullmatch(weight):
        raise ValueError(
            f"the weight of {name!r} must be a number above 0, such as 3 or 0.25, of at most six "
            "digits"
        )
    if not Fraction(weight):
        raise ValueError(
            f"{name!r} has no weight and would get no request, so leave it out"
        )
    return name, Fraction(weight)


def _whole(weights: list[Fraction]) -> tuple[int, ...]:
    """The same shares as the smallest whole numbers."""
    scale = math.lcm(*(weight.denominator for weight in weights))
    numbers = [int(weight * scale) for weight in weights]
    divisor = math.gcd(*numbers)
    shares = tuple(number // divisor for number in numbers)
    if sum(shares) > MOST_SHARES:
        raise ValueError(
            f"as whole numbers these weights add up to {sum(shares)}; round them so that it is "
            f"at most {MOST_SHARES}"
        )
    return shares
