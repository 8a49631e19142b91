"""How many users: doubles, bisects, and refines the edge.

The answer is that of a falling curve through all probes. Bisection alone ends beside the truth in
up to two of three searches, because each of its steps believes one noisy share. So the levels
around its end are measured again, three times as long and in random order, and the interval comes
from resampling whole batches of requests.
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

# The steps of a search.
DOUBLING = "doubling"
BISECTING = "bisecting"
REFINING = "refining"
# Requests of a probe.
LEAST_REQUESTS = 100
PER_USER = 4
# While users are doubled, where most levels are far from the edge: a slow server needs minutes for
# 100 requests of one user.
LEAST_DOUBLING = 30
REFINED = 3  # times as many in the second part
RESAMPLES = 1000
TAIL = 0.025
# The answer of a search is not known better than to one user or to this share: levels between two
# probes are interpolated.
WITHIN = 0.05
MOST_ROUNDS = 3
# a first probe that met a cold server may miss the goal at a level far below the capacity
MOST_BRACKETS = 3
# A further round of refinement begins only within this many requests in all.
MOST_REQUESTS = 5000
MOST_PER_USER = 110


@dataclass(slots=True)
class _Search:
    """The probes so far, and the highest level that can be used.

    Beyond that ceiling the client or a failure is the limit.
    """

    probe: Probe
    goal: Goal
    draw: random.Random
    results: list[ProbeResult] = field(default_factory=list)
    ceiling: int | None = None
    ceiling_fault: str = ""

    def meets_goal(self, level: int, step: str) -> bool | None:
        """Send a probe: whether the level meets the goal, by all its probes.

        None if the level cannot be used.
        """
        needed = None if step == REFINING else self.goal.share
        plan = ProbePlan(level, requests_at(level, step), step, needed)
        try_twice(self.probe, plan, self.results)

        here = [result for result in self.results if result.level == level]
        faults = []
        for result in here:
            if not result.counts:
                faults.append(result.fault)

        if 2 * len(faults) > len(here):  # those that can be used may be the lucky ones
            if self.ceiling is None or level < self.ceiling:
                self.ceiling = level
                self.ceiling_fault = faults[0]
            return None

        good = np.concatenate([result.good for result in here if result.counts])
        return float(good.mean()) >= self.goal.share

    def can_try(self, level: int) -> bool:
        """Whether a level is within what may be searched, and below the ceiling."""
        if self.ceiling is not None and level >= self.ceiling:
            return False
        return 1 <= level <= self.goal.most_users

    def most(self) -> int:
        """The highest level that can be tried."""
        if self.ceiling is None:
            return self.goal.most_users
        return min(self.goal.most_users, self.ceiling - 1)


def requests_at(level: int, step: str) -> int:
    """Measured requests of a probe."""
    of_users = PER_USER * level
    if step == DOUBLING:
        return max(LEAST_DOUBLING, of_users)

    requests = max(LEAST_REQUESTS, of_users)
    if step == REFINING:
        return REFINED * requests
    return requests


def search_users(probe: Probe, goal: Goal, seed: int = 0) -> Capacity:
    """The most users of whom `goal.share` of the requests meets the objectives."""
    search = _Search(probe, goal, random.Random(seed))
    return _answer(search, within_budget(lambda: _send_probes(search)))


def _send_probes(search: _Search) -> None:
    edge = 0
    for _ in range(MOST_BRACKETS):
        low, high = _bracket(search, edge)
        if high is None:
            return
        _refine(search, low, high)

        edge = estimate(search.results, search.goal.share) or 0
        if not edge or edge >= search.most():
            return
        if any(result.level > edge for result in search.results if result.counts):
            return
        # The level that had missed the goal meets it in longer probes, and nothing above was tried.


def _bracket(search: _Search, low: int) -> tuple[int, int | None]:
    """Two levels next to each other, from `low` on: one met the goal, the next did not.

    The first is 0 if none met it, the second None if none missed it.
    """
    low, high = _double(search, low)
    if low == search.goal.most_users:
        return low, None
    return _bisect(search, low, high)


def _double(search: _Search, low: int) -> tuple[int, int | None]:
    """Double the users until a level misses the goal, cannot be used, or is the most.

    Returns the last level that met the goal and the one that did not (None: there was none).
    """
    most = search.goal.most_users
    level = min(2 * low, most) if low else 1
    while low < most:
        met = search.meets_goal(level, DOUBLING)
        if met is None:
            break
        if not met:
            return low, level
        low = level
        level = min(2 * level, most)
    return low, None


def _bisect(search: _Search, low: int, high: int | None) -> tuple[int, int | None]:
    """Halve the distance of two levels until none need be tried between them."""
    while True:
        # Levels that cannot be used bound the bisection, but never the answer.
        bounds = []
        for bound in (high, search.ceiling):
            if bound is not None:
                bounds.append(bound)

        if not bounds:
            return low, high
        top = min(bounds)
        if top - low <= _gap(low):
            return low, high

        middle = (low + top) // 2
        met = search.meets_goal(middle, BISECTING)
        if met:
            low = middle
        elif met is False:
            high = middle


def _gap(low: int) -> int:
    """Levels this close together need none between them: one user, or 5 %."""
    return max(1, math.floor(WITHIN * low))


def _refine(search: _Search, low: int, high: int) -> None:
    """Measure the edge and its neighbours three times as long, in random order.

    Again where the curve moved the edge.
    """
    refined: set[int] = set()
    for _ in range(MOST_ROUNDS):
        step = _gap(low)
        around = {low - step, low, high, high + step} - refined
        levels = []
        for level in sorted(around):
            if search.can_try(level):
                levels.append(level)

        if not levels:
            return
        if refined and not _is_affordable(search, levels):
            return

        search.draw.shuffle(levels)
        for level in levels:
            search.meets_goal(level, REFINING)

        refined.update(levels)
        low = estimate(search.results, search.goal.share) or 0
        high = low + _gap(low)


def _is_affordable(search: _Search, levels: Collection[int]) -> bool:
    """Whether a round at these levels stays within the requests that a search may send."""
    requests = sum(result.sent for result in search.results)
    for level in levels:
        requests += requests_at(level, REFINING) + BESIDE_PER_USER * level

    return requests <= max(MOST_REQUESTS, MOST_PER_USER * min(levels))


def estimate(results: Sequence[ProbeResult], share: float) -> int | None:
    """Users at which the falling curve through all probes meets the share.

    None if it never does.
    """
    return _cross(by_level(results), share)


def _cross(table: np.ndarray, share: float) -> int | None:
    level = meets(table, share)
    if level is None:
        return None
    return math.floor(level + 1e-9)


def _answer(search: _Search, why: str) -> Capacity:
    """The estimate with its interval."""
    table = by_level(search.results)
    value = _cross(table, search.goal.share)
    if search.ceiling is not None and value is not None and value >= search.ceiling:
        search.results = _without_the_lucky(search.results, search.ceiling)
        table = by_level(search.results)
        value = _cross(table, search.goal.share)

    if not len(table):
        reason = why or search.ceiling_fault or "no probe could be used"
        return Capacity(None, None, None, search.results, reason)

    low: float
    high: float | None
    low, high = _interval(search, value or 0)
    if value is not None and value >= table[-1, 0]:
        high = None
        most = f"{search.goal.most_users} users were the most that the search may try"
        why = why or search.ceiling_fault or most

    notes = changes(search.results, USERS)
    for level in rises(batches_by_level(search.results)):
        notes.append(
            f"not monotone at {level:g} users: "
            "more users met the objectives there than at a lower load"
        )
    return Capacity(float(value or 0), low, high, search.results, why, notes)


def _without_the_lucky(
    results: Sequence[ProbeResult], ceiling: int
) -> list[ProbeResult]:
    """The probes with a fault in all from the ceiling on.

    Of these levels only the probes that happened to meet the goal could be used: nothing is known
    of them.
    """
    unused = f"not used, since a probe at {ceiling} users could not be"
    marked = []
    for result in results:
        if result.level >= ceiling and not result.fault:
            result = replace(result, fault=unused)
        marked.append(result)
    return marked


def _interval(search: _Search, value: int) -> tuple[float, float]:
    """2.5 % and 97.5 % of the answers of resampled batches.

    At least one user, or 5 %, to each side.
    """
    draw = np.random.default_rng(search.draw.randrange(2**32))
    batches = batches_by_level(search.results)
    levels = np.array(list(batches))[:, None]

    resampled = []
    for of_level in batches.values():
        drawn = draw.integers(0, len(of_level), (RESAMPLES, len(of_level)))
        resampled.append(of_level[drawn].sum(axis=1))

    answers = []
    for sums in np.stack(resampled, axis=1):
        table = np.hstack([levels, sums])
        answers.append(_cross(table, search.goal.share) or 0)

    low, high = np.quantile(answers, [TAIL, 1 - TAIL])
    reach = _gap(value)
    lowest = min(math.floor(low), value - reach)
    highest = max(math.ceil(high), value + reach)
    return float(max(0, lowest)), float(highest)
