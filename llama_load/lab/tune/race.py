"""A race of settings: blocks in which each remaining one runs once, in random order, until one is left or all are alike.

Blocks pair the runs: what drifts over hours (temperature, other users) meets all settings of a block alike, so differences are
taken within blocks. After three blocks a setting is dropped if it is significantly worse than the best (paired t test, Holm over
all comparisons of the round). Settings within 3 % of each other have no real difference: where the best is not better than the
default by more, with confidence, the default stays.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from llama_load.comparison.change_intervals import LEAST_SPREAD, holm, t_quantile, t_tail

LEAST_BLOCKS, MOST_BLOCKS = 3, 8
SIGNIFICANCE = 0.05
INDIFFERENCE = 0.03  # relative
# Scores of setting number i in block number b; None: it did not run to its end.
Run = Callable[[int, int], float | None]
# Why a setting must not be ranked against the default, by what both have run so far; empty: it may.
Against = Callable[[int], str]


def _nothing(number: int) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Raced:
    """The outcome: the winner's number, the scores by setting (of the blocks that it ran in), and why each was dropped. `is_real`:
    the winner is better than the default (number 0) by over 3 %, with confidence; `gain` is that ratio - 1 with its 95 % interval.
    """

    winner: int
    scores: Sequence[Sequence[float]]
    dropped: dict[int, str]
    is_real: bool
    gain: tuple[float, float, float] | None
    blocks: int


def race(count: int, run: Run, seed: int = 0, against: Against = _nothing) -> Raced:
    """Race settings 0 (the default) to count - 1. The default stays in every block, so that the end compares with it. A setting
    that must not be ranked against it is dropped."""
    draw = random.Random(seed)
    scores: list[list[float]] = [[] for _ in range(count)]
    dropped: dict[int, str] = {}
    alive = list(range(count))
    block = 0
    while block < MOST_BLOCKS:
        order = sorted({0, *alive})
        draw.shuffle(order)
        for number in order:
            score = run(number, block)
            if score is None or score <= 0:
                dropped[number] = "a run failed" if score is None else "no request met the objectives"
                alive = [other for other in alive if other != number]
            else:
                scores[number].append(math.log(score))
        block += 1
        for number in [number for number in alive if number]:
            if why := against(number):
                dropped[number] = why
                alive.remove(number)
        if not alive:
            break
        if block >= LEAST_BLOCKS:
            alive = _remaining(alive, scores, dropped)
            if len(alive) == 1 and (alive[0] == 0 or _gain(scores, alive[0]) is not None):
                break
            if _are_equal(alive, scores):
                break
    winner = _winner(alive, scores)
    gain = _gain(scores, winner) if winner else None
    is_real = gain is not None and gain[1] > 0 and gain[0] > INDIFFERENCE
    if winner and not is_real and 0 not in dropped:
        winner = 0
    return Raced(winner, [[math.exp(score) for score in own] for own in scores], dropped, is_real, gain, block)


def _differences(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """Of the blocks in which both ran: a setting runs in every block until it is dropped."""
    return [a - b for a, b in zip(one, other, strict=False)]


def _mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    spread = stdev(values) if len(values) > 1 else 0.0
    return fmean(values), max(spread, LEAST_SPREAD) / math.sqrt(len(values))


def _remaining(alive: Sequence[int], scores: Sequence[Sequence[float]], dropped: dict[int, str]) -> list[int]:
    """Those that are not significantly worse than the best."""
    best = max(alive, key=lambda number: fmean(scores[number]))
    others = [number for number in alive if number != best]
    differences = [_mean_and_error(_differences(scores[best], scores[number])) for number in others]
    p_values = holm([t_tail(mean / error, len(scores[best]) - 1) for mean, error in differences])
    for number, p, (mean, _) in zip(others, p_values, differences, strict=True):
        if p < SIGNIFICANCE:
            dropped[number] = f"{100 * (1 - math.exp(-mean)):.1f} % worse than the best (p = {p:.2g})"
    return [number for number in alive if number not in dropped]


def _are_equal(alive: Sequence[int], scores: Sequence[Sequence[float]]) -> bool:
    """Whether all differences to the best are within the indifference, with confidence."""
    best = max(alive, key=lambda number: fmean(scores[number]))
    for number in alive:
        if number != best:
            mean, error = _mean_and_error(_differences(scores[best], scores[number]))
            if mean + t_quantile(1 - SIGNIFICANCE, len(scores[best]) - 1) * error > math.log1p(INDIFFERENCE):
                return False
    return True


def _winner(alive: Sequence[int], scores: Sequence[Sequence[float]]) -> int:
    """The best; of those within 3 % of it the first in the plan."""
    if not alive:
        return 0
    means = {number: fmean(scores[number]) for number in alive}
    top = max(means.values())
    return min(number for number, mean in means.items() if top - mean <= math.log1p(INDIFFERENCE) / 3 or mean == top)


def _gain(scores: Sequence[Sequence[float]], number: int) -> tuple[float, float, float] | None:
    """How much better than the default, with its 95 % interval, from the blocks of both."""
    values = _differences(scores[number], scores[0])
    if len(values) < LEAST_BLOCKS:
        return None
    mean, error = _mean_and_error(values)
    reach = t_quantile(0.975, len(values) - 1) * error
    return math.expm1(mean), math.expm1(mean - reach), math.expm1(mean + reach)
