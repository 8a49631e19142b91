"""Which workload an arrival belongs to, where a run has several."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import lru_cache


def drawn_by_weight(weights: Mapping[str, float], seed: int) -> Callable[[int], str]:
    """A function from arrival number to workload, drawn by the weights of the user classes; deterministic."""
    names, shares = list(weights), list(weights.values())
    if len(names) == 1:
        return lambda _: names[0]

    @lru_cache(1 << 16)
    def drawn(number: int) -> str:
        return random.Random(f"workload {seed} {number}").choices(names, shares)[0]

    return drawn
