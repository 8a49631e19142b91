"""A race of settings: in each block every remaining one runs once, in random order.

It goes on until one is left or all are alike. Blocks pair the runs: what drifts over hours
(temperature, other users) meets all settings of a block alike, so differences are taken within
blocks, from those in which both runs have a score: what kept the client from its work says nothing
about the setting. After three such blocks a setting is dropped if it is significantly worse than
the best (paired t test, Holm over all comparisons of the round). Settings within 3 % of each other
have no real difference: where the best is not better than the default by more, with confidence, the
default stays.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from llama_load.analysis.comparison.change_intervals import LEAST_SPREAD, holm
from llama_load.run_folder.arithmetic.student_t import t_quantile, t_tail

LEAST_BLOCKS = 3
MOST_BLOCKS = 8
MOST_DISTURBED = 3  # blocks in a row in which a setting has no score: it is dropped
SIGNIFICANCE = 0.05
INDIFFERENCE = 0.03  # relative
# The score of setting number i in block number b. NoScore: the run has none.
Run = Callable[[int, int], float]
# Why a setting must not be ranked against the default, by what both have run so far; empty: it may.
Against = Callable[[int], str]


# Logarithms of a setting's scores by block.
Logs = Mapping[int, float]


class NoScore(Exception):
    """A run without a score, in words. `may_pass`: not because of its setting, as where other
    programs kept the client from its work.
    """

    def __init__(self, words: str, *, may_pass: bool = False) -> None:
        super().__init__(words)
        self.may_pass = may_pass


def _no_reason(number: int) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Raced:
    """The outcome of a race.

    The winner's number, the scores by setting (of the blocks in which it had one), and why each was
    dropped: those in `worse` lost to the best, those in `failures` (its words) by a run without a
    score. `is_real`: the winner is better than the default (number 0) by over 3 %, with confidence;
    `gain` is that ratio - 1 with its 95 % interval.
    """

    winner: int
    scores: Sequence[Sequence[float]]
    dropped: dict[int, str]
    worse: frozenset[int]
    failures: dict[int, str]
    is_real: bool
    gain: tuple[float, float, float] | None
    blocks: int


class _Race:
    """The settings that are left and the logarithms of the scores so far."""

    def __init__(self, count: int, run: Run, against: Against) -> None:
        self._run = run
        self._against = against
        self.alive = list(range(count))
        self.dropped: dict[int, str] = {}
        self.worse: set[int] = set()
        self.failures: dict[int, str] = {}
        self.logs: list[dict[int, float]] = [{} for _ in range(count)]
        self._disturbed = [0] * count

    def run_block(self, order: Sequence[int], block: int) -> None:
        """Run these settings, and drop those that failed or must not be ranked."""
        for number in order:
            try:
                score = self._run(number, block)
            except NoScore as error:
                self._note_failure(number, error)
                continue
            if score <= 0:
                self.worse.add(number)
                self._drop(number, "no request met the objectives")
            else:
                self._disturbed[number] = 0
                self.logs[number][block] = math.log(score)

        for number in list(self.alive):
            if number == 0:
                continue
            reason = self._against(number)
            if reason:
                self._drop(number, reason)

    def _note_failure(self, number: int, error: NoScore) -> None:
        """Drop the setting, or where the cause may pass, wait for its next block."""
        why = "a run failed"
        if error.may_pass:
            self._disturbed[number] += 1
            if self._disturbed[number] < MOST_DISTURBED:
                return
            why = f"{MOST_DISTURBED} runs in a row were disturbed"

        self.failures[number] = str(error)
        self._drop(number, why)

    def _drop(self, number: int, reason: str) -> None:
        self.dropped[number] = reason
        if number in self.alive:
            self.alive.remove(number)

    def is_decided(self) -> bool:
        """Drop what is worse than the best: whether one is left, or all are alike."""
        for number, reason in _worse(self.alive, self.logs).items():
            self.worse.add(number)
            self._drop(number, reason)
        if len(self.alive) == 1:
            only = self.alive[0]
            if only == 0 or _gain(self.logs, only) is not None:
                return True
        return _are_equal(self.alive, self.logs)


def race(count: int, run: Run, seed: int = 0, against: Against = _no_reason) -> Raced:
    """Race settings 0 (the default) to count - 1.

    The default stays in every block, so that the end compares with it. A setting that must not be
    ranked against it is dropped.
    """
    draw = random.Random(seed)
    racing = _Race(count, run, against)

    block = 0
    while block < MOST_BLOCKS:
        order = sorted({0, *racing.alive})
        draw.shuffle(order)
        racing.run_block(order, block)
        block += 1
        if not racing.alive:
            break
        if block >= LEAST_BLOCKS and racing.is_decided():
            break

    winner = _winner(racing.alive, racing.logs)
    gain = _gain(racing.logs, winner) if winner else None
    is_real = gain is not None and gain[1] > 0 and gain[0] > INDIFFERENCE
    if winner and not is_real and 0 not in racing.dropped:
        winner = 0

    scores = []
    for logs in racing.logs:
        scores.append([math.exp(log) for log in logs.values()])
    worse = frozenset(racing.worse)
    return Raced(
        winner, scores, racing.dropped, worse, racing.failures, is_real, gain, block
    )


def _differences(one: Logs, other: Logs) -> list[float]:
    """Of the blocks in which both have a score."""
    return [log - other[block] for block, log in one.items() if block in other]


def _mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    spread = stdev(values) if len(values) > 1 else 0.0
    return fmean(values), max(spread, LEAST_SPREAD) / math.sqrt(len(values))


def _worse(alive: Sequence[int], scores: Sequence[Logs]) -> dict[int, str]:
    """Those that are significantly worse than the best, and by how much."""
    best = _best(alive, scores)
    judged = []
    differences = []
    p_values = []
    for number in alive:
        values = _differences(scores[best], scores[number])
        if number == best or len(values) < LEAST_BLOCKS:
            continue
        mean, error = _mean_and_error(values)
        judged.append(number)
        differences.append(mean)
        p_values.append(t_tail(mean / error, len(values) - 1))

    worse = {}
    for number, mean, p in zip(judged, differences, holm(p_values), strict=True):
        if p < SIGNIFICANCE:
            percent = 100 * (1 - math.exp(-mean))
            worse[number] = f"{percent:.1f} % worse than the best (p = {p:.2g})"
    return worse


def _are_equal(alive: Sequence[int], scores: Sequence[Logs]) -> bool:
    """Whether all differences to the best are within the indifference, with confidence."""
    best = _best(alive, scores)
    for number in alive:
        if number == best:
            continue
        values = _differences(scores[best], scores[number])
        if len(values) < LEAST_BLOCKS:
            return False
        mean, error = _mean_and_error(values)
        reach = t_quantile(1 - SIGNIFICANCE, len(values) - 1) * error
        if mean + reach > math.log1p(INDIFFERENCE):
            return False
    return True


def _best(alive: Sequence[int], scores: Sequence[Logs]) -> int:
    """The setting with the highest mean."""
    return max(alive, key=lambda number: _mean(scores[number]))


def _mean(logs: Logs) -> float:
    """The mean of a setting's scores; below all others where it has none yet."""
    if not logs:
        return -math.inf
    return fmean(logs.values())


def _winner(alive: Sequence[int], scores: Sequence[Logs]) -> int:
    """The best; of those within 3 % of it the first in the plan."""
    if not alive:
        return 0

    best = _mean(scores[_best(alive, scores)])
    near = []
    for number in alive:
        mean = _mean(scores[number])
        if mean >= best - math.log1p(INDIFFERENCE) / 3:
            near.append(number)
    return min(near)


def _gain(scores: Sequence[Logs], number: int) -> tuple[float, float, float] | None:
    """How much better than the default, with its 95 % interval, from the blocks of both."""
    values = _differences(scores[number], scores[0])
    if len(values) < LEAST_BLOCKS:
        return None
    mean, error = _mean_and_error(values)
    reach = t_quantile(0.975, len(values) - 1) * error
    return math.expm1(mean), math.expm1(mean - reach), math.expm1(mean + reach)
