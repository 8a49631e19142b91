"""How many requests per second: a line through the logarithm of the miss shares of probes around the estimate, never a bisection.

In an open loop one probe near the capacity says little, since its queue forgets slowly: bisecting by Wilson intervals excludes the
truth in most searches. So a short closed ladder and a few pilots find the region, 8 probes at 0.80 to 1.03 of the estimate follow
in random order, and up to 8 more while the interval is wide. The estimate moves after every fourth.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from llama_load.lab.search.isotonic import meets, rises
from llama_load.lab.search.miss_fit import Root, root
from llama_load.lab.search.search_probe import (
    Capacity,
    Goal,
    Probe,
    ProbePlan,
    ProbeResult,
    batches_by_level,
    by_level,
    try_twice,
    within_budget,
)

LADDER, PILOTING, FITTING = "closed ladder", "pilot", "fitting"  # the steps of a search
BLOCK, LEAST_BLOCKS, BLOCKS = 4, 2, 4
LOWEST, HIGHEST = 0.80, 1.03  # of the estimate
LEAST_OF_LADDER = 30
PILOT, MOST_PILOTS = 120, 4
MOST_OF_LADDER = 0.97  # of the throughput of the closed ladder
STEP_UP, STEP_DOWN = 1.2, 0.8
# The figure of a closed probe that gives its throughput.
LATENCY = "mean_e2el_ms"
# The first block is enough if the interval is within this share of the estimate.
ENOUGH = 0.025
# One block moves the estimate at most by these factors: a line through four probes may be steep by chance.
LARGEST_MOVE = (0.75, 1.3)
# Probes farther from the root than this are not on the line any more: at low rates it bends, and a queue near its limit does not
# become steady within a probe. Below this share of the most that users in a closed loop sent it does.
NEAR, CALM = (0.78, 1.05), 0.75
# The line and the falling curve through the same probes differ by more than this only where the line is wrong.
UNLIKE = 0.08
Z_90 = 1.2816


@dataclass(slots=True)
class _Search:
    probe: Probe
    ladder: Probe
    goal: Goal
    draw: random.Random
    steps: list[ProbeResult] = field(default_factory=list)  # of the closed ladder
    most_rps: float = 0.0  # that it sent
    pilots: list[ProbeResult] = field(default_factory=list)
    results: list[ProbeResult] = field(default_factory=list)


def search_rate(probe: Probe, ladder: Probe, goal: Goal, seed: int = 0) -> Capacity:
    """The rate at which `goal.share` of the requests meets the objectives. `ladder`: a closed loop, whose results have the figure
    `LATENCY`."""
    search = _Search(probe, ladder, goal, random.Random(seed))
    return _answer(search, within_budget(lambda: _send_probes(search)))


def _send_probes(search: _Search) -> None:
    first = _first_estimate(search)
    if first is not None:
        _blocks(search, _pilots(search, first))


def _first_estimate(search: _Search) -> float | None:
    """The first estimate, from a closed ladder of doubled users, which also gives the most requests/s that any number of them sent.

    `users` in flight with a mean latency of T send users / T requests/s (Little). If they are the most that meet the objectives, a
    random number in flight of mean a and standard deviation sqrt(a) stays below them for 90 % of the arrivals where
    a + 1.28 sqrt(a) = users; then the rate is a / T.
    """
    goal = search.goal
    level, best = 1, None
    while level <= goal.most_users:
        result = try_twice(search.ladder, ProbePlan(level, max(LEAST_OF_LADDER, 2 * level), LADDER), search.steps)
        latency_ms = result.figures.get(LATENCY)
        if not result.counts or not latency_ms:
            break
        search.most_rps = max(search.most_rps, level / latency_ms * 1e3)
        if best is None or result.share >= goal.share:
            best = (level, latency_ms / 1e3)
        if result.share < goal.share:
            break
        level *= 2
    if best is None:
        return None
    users, latency_s = best
    return (math.sqrt(Z_90**2 / 4 + users) - Z_90 / 2) ** 2 / latency_s


def _pilots(search: _Search, estimate: float) -> float:
    """Move the estimate with short probes until one misses and one meets the goal; not beyond what users in a closed loop got,
    because a short probe of an overloaded server ends before its queue has grown."""
    limit, most = 1 - search.goal.share, search.most_rps
    low = high = None
    for _ in range(MOST_PILOTS):
        result = search.probe(ProbePlan(estimate, min(PILOT, search.goal.requests_of_rate), PILOTING, search.goal.share))
        search.pilots.append(result)
        if not result.counts:
            break
        if 1 - result.share > limit:
            high = estimate
            estimate = STEP_DOWN * high if low is None else (low + high) / 2
        else:
            low = estimate
            estimate = STEP_UP * low if high is None else (low + high) / 2
        if low is not None and high is not None:
            break
        if low is not None and low >= MOST_OF_LADDER * most:
            break
        estimate = min(estimate, MOST_OF_LADDER * most)
    return estimate


def _blocks(search: _Search, estimate: float) -> None:
    """Four probes at a time, one in each quarter of the range around the estimate, which moves to the root after each block."""
    for number in range(BLOCKS):
        places = [(quarter + search.draw.random()) / BLOCK for quarter in range(BLOCK)]
        search.draw.shuffle(places)
        for place in places:
            rate = estimate * (LOWEST + (HIGHEST - LOWEST) * place)
            search.results.append(search.probe(ProbePlan(rate, search.goal.requests_of_rate, FITTING)))
        fit = _root(search)
        if fit is not None and fit.value > 0:
            estimate = min(max(fit.value, LARGEST_MOVE[0] * estimate), LARGEST_MOVE[1] * estimate)
            if number + 1 >= LEAST_BLOCKS and fit.high - fit.low <= 2 * ENOUGH * fit.value:
                return
        else:
            shares = [result.share for result in search.results[-BLOCK:] if result.counts]
            estimate *= STEP_UP if shares and sorted(shares)[len(shares) // 2] >= search.goal.share else STEP_DOWN


def _root(search: _Search) -> Root | None:
    """The root of the line through the probes near it: first near the crossing of the falling curve, then near the root itself."""
    probes = sorted((result for result in search.results if result.counts), key=lambda result: result.level)
    value = meets(by_level(probes), search.goal.share)
    fit = None
    for _ in range(3):
        if value is None:
            break
        highest = max(NEAR[1] * value, CALM * search.most_rps)
        near = [probe for probe in probes if NEAR[0] * value <= probe.level <= highest]
        fit = _root_of(near, search.goal.share) or fit
        value = None if fit is None else fit.value
    if fit is None or not probes[0].level <= fit.value <= probes[-1].level:
        return None  # beyond what was probed the line is a guess
    return fit


def _root_of(probes: Sequence[ProbeResult], share: float) -> Root | None:
    counts = [len(probe.good) for probe in probes]
    misses = [count - int(probe.good.sum()) for probe, count in zip(probes, counts, strict=True)]
    return root([probe.level for probe in probes], misses, counts, 1 - share)


def _answer(search: _Search, why: str) -> Capacity:
    everything = [*search.steps, *search.pilots, *search.results]
    probes = sorted((result for result in search.results if result.counts), key=lambda result: result.level)
    faults = [result.fault for result in search.results or search.steps if result.fault]
    curve = meets(by_level(probes), search.goal.share)
    fit = _root(search)
    if fit is None:
        met = [probe.level for probe in probes if probe.share >= search.goal.share]
        missed = [probe.level for probe in probes if probe.share < search.goal.share]
        nothing = "no request of the first probe succeeded" if not search.results else "no share falls with the rate"
        why = why or (faults[0] if faults else nothing)
        return Capacity(max(met, default=None), None, min(missed, default=None), everything, why)  # fmt: skip
    notes = []
    low, high = fit.low, fit.high
    if curve is not None:  # the check of the line, which need not be straight: the interval holds both answers
        low, high = min(low, curve), max(high, curve)
        if abs(curve / fit.value - 1) > UNLIKE:
            text = f"the misses do not grow exponentially with the rate: a falling curve through the probes gives {curve:.3g}/s"
            notes.append(text)
    notes += [
        f"not monotone at {level:.3g}/s: more requests met the objectives there than at a lower rate"
        for level in rises(batches_by_level(probes))
    ]
    return Capacity(fit.value, max(low, 0.0), high, everything, why, notes)
