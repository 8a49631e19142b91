"""How many users: doubles, bisects, and refines the edge; the answer is that of a falling curve through all probes.

Bisection alone ends beside the truth in up to two of three searches, because each of its steps believes one noisy share. So the
levels around its end are measured again, three times as long and in random order, and the interval comes from resampling whole
batches of requests.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from llama_load.lab.search.isotonic import meets, rises
from llama_load.lab.search.search_probe import (
    BESIDE_PER_USER,
    USERS,
    Capacity,
    Goal,
    Probe,
    ProbePlan,
    ProbeResult,
    batches_by_level,
    by_level,
    changes,
    try_twice,
    within_budget,
)

DOUBLING, BISECTING, REFINING = "doubling", "bisecting", "refining"  # the steps of a search
LEAST_REQUESTS, PER_USER = 100, 4  # of a probe
# While users are doubled, where most levels are far from the edge: a slow server needs minutes for 100 requests of one user.
LEAST_DOUBLING = 30
REFINED = 3  # times as many in the second part
RESAMPLES = 1000
TAIL = 0.025
# The answer of a search is not known better than to one user or to this share: levels between two probes are interpolated.
WITHIN = 0.05
MOST_ROUNDS = 3
MOST_BRACKETS = 3  # a first probe that met a cold server may miss the goal at a level far below the capacity
# A further round of refinement begins only within this many requests in all.
MOST_REQUESTS, MOST_PER_USER = 5000, 110


@dataclass(slots=True)
class _Search:
    """The probes so far, and the highest level that can be used: beyond it the client or a failure is the limit."""

    probe: Probe
    goal: Goal
    draw: random.Random
    results: list[ProbeResult] = field(default_factory=list)
    ceiling: int | None = None
    ceiling_fault: str = ""

    def at(self, level: int, step: str) -> bool | None:
        """Whether a level meets the goal, by all its probes; None if it cannot be used."""
        refines = step == REFINING
        needed = None if refines else self.goal.share
        try_twice(self.probe, ProbePlan(level, requests_at(level, step), step, needed), self.results)
        here = [result for result in self.results if result.level == level]
        faults = [result.fault for result in here if not result.counts]
        if 2 * len(faults) > len(here):  # those that can be used may be the lucky ones
            if self.ceiling is None or level < self.ceiling:
                self.ceiling, self.ceiling_fault = level, faults[0]
            return None
        good = [result.good for result in self.results if result.counts and result.level == level]
        return float(np.concatenate(good).mean()) >= self.goal.share


def requests_at(level: int, step: str) -> int:
    """Measured requests of a probe."""
    if step == DOUBLING:
        return max(LEAST_DOUBLING, PER_USER * level)
    return max(LEAST_REQUESTS, PER_USER * level) * (REFINED if step == REFINING else 1)


def search_users(probe: Probe, goal: Goal, seed: int = 0) -> Capacity:
    """The most users of whom `goal.share` of the requests meets the objectives."""
    search = _Search(probe, goal, random.Random(seed))
    return _answer(search, within_budget(lambda: _send_probes(search)))


def _send_probes(search: _Search) -> None:
    edge, most = 0, search.goal.most_users
    for _ in range(MOST_BRACKETS):
        low, high = _bracket(search, edge)
        if high is None:
            return
        _refine(search, low, high)
        edge = estimate(search.results, search.goal.share) or 0
        bound = most if search.ceiling is None else min(most, search.ceiling - 1)
        if not edge or edge >= bound or any(result.level > edge for result in search.results if result.counts):
            return  # else the level that had missed the goal meets it in longer probes, and nothing above was tried


def _bracket(search: _Search, low: int) -> tuple[int, int | None]:
    """The highest level that met the goal (0: none) and the lowest that did not (None: none), next to each other, from `low` on."""
    high, level = None, min(2 * low, search.goal.most_users) if low else 1
    while high is None:
        met = search.at(level, DOUBLING)
        if met is None:
            break
        if not met:
            high = level
        else:
            low = level
            if level == search.goal.most_users:
                return low, None
            level = min(2 * level, search.goal.most_users)
    # Levels that cannot be used bound the bisection, but never the answer.
    while (top := high if search.ceiling is None else min(search.ceiling, high or search.ceiling)) is not None:
        if top - low <= _gap(low):
            break
        middle = (low + top) // 2
        met = search.at(middle, BISECTING)
        if met:
            low = middle
        elif met is False:
            high = middle
    return low, high


def _gap(low: int) -> int:
    """Levels this close together need none between them: one user, or 5 %."""
    return max(1, math.floor(WITHIN * low))


def _refine(search: _Search, low: int, high: int) -> None:
    """Measure the edge and its neighbours three times as long, in random order; again where the curve moved the edge."""
    refined: set[int] = set()
    for _ in range(MOST_ROUNDS):
        step = _gap(low)
        levels = {level for level in (low - step, low, high, high + step) if 1 <= level <= search.goal.most_users} - refined
        if search.ceiling is not None:
            levels = {level for level in levels if level < search.ceiling}
        if not levels or (refined and not _is_affordable(search, levels)):
            return
        order = sorted(levels)
        search.draw.shuffle(order)
        for level in order:
            search.at(level, REFINING)
        refined |= levels
        edge = estimate(search.results, search.goal.share)
        low = 0 if edge is None else edge
        high = low + _gap(low)


def _is_affordable(search: _Search, levels: Collection[int]) -> bool:
    """Whether a round at these levels stays within the requests that a search may send."""
    cost = sum(requests_at(level, REFINING) + BESIDE_PER_USER * level for level in levels)
    return sum(result.sent for result in search.results) + cost <= max(MOST_REQUESTS, MOST_PER_USER * min(levels))


def estimate(results: Sequence[ProbeResult], share: float) -> int | None:
    """Users at which the falling curve through all probes meets the share; None if it never does."""
    return _cross(by_level(results), share)


def _cross(table: np.ndarray, share: float) -> int | None:
    level = meets(table, share)
    return None if level is None else math.floor(level + 1e-9)


def _answer(search: _Search, why: str) -> Capacity:
    """The estimate with its interval."""
    share = search.goal.share
    table = by_level(search.results)
    value = _cross(table, share)
    if search.ceiling is not None and value is not None and value >= search.ceiling:
        # Of these levels only the probes that happened to meet the goal could be used: nothing is known of them.
        unused = f"not used, since a probe at {search.ceiling} users could not be"
        search.results = [replace(result, fault=result.fault or unused) if result.level >= search.ceiling else result
                          for result in search.results]  # fmt: skip
        table = by_level(search.results)
        value = _cross(table, share)
    if not len(table):
        return Capacity(None, None, None, search.results, why or search.ceiling_fault or "no probe could be used")
    low, high = _interval(search, value or 0)
    notes = changes(search.results, USERS)
    notes += [
        f"not monotone at {level:g} users: more users met the objectives there than at a lower load"
        for level in rises(batches_by_level(search.results))
    ]
    is_open_above = value is not None and value >= table[-1, 0]
    if is_open_above and not why:
        why = search.ceiling_fault or f"{search.goal.most_users} users were the most that the search may try"
    return Capacity(float(value or 0), low, None if is_open_above else high, search.results, why, notes)


def _interval(search: _Search, value: int) -> tuple[float, float]:
    """2.5 % and 97.5 % of the answers of resampled batches; at least one user, or 5 %, to each side."""
    draw = np.random.default_rng(search.draw.randrange(2**32))
    batches = batches_by_level(search.results)
    resampled = [part[draw.integers(0, len(part), (RESAMPLES, len(part)))].sum(axis=1) for part in batches.values()]
    column = np.array(list(batches))[:, None]
    answers = [_cross(np.hstack([column, sum_of_batch]), search.goal.share) or 0 for sum_of_batch in np.stack(resampled, axis=1)]
    low, high = np.quantile(answers, [TAIL, 1 - TAIL])
    reach = max(1, math.floor(WITHIN * value))
    return float(max(0, min(math.floor(low), value - reach))), float(max(math.ceil(high), value + reach))
