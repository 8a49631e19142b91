"""How many requests per second: a line through the logarithm of the miss shares of probes.

The probes lie around the estimate; it is never a bisection. In an open loop one probe near the
capacity says little, since its queue forgets slowly: bisecting by Wilson intervals excludes the
truth in most searches. So a short closed ladder and a few pilots find the region, 8 probes at 0.80
to 1.03 of the estimate follow in random order, and up to 8 more while the interval is wide. The
estimate moves after every fourth.
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

# The steps of a search.
LADDER = "closed ladder"
PILOTING = "pilot"
FITTING = "fitting"
BLOCK = 4  # probes
LEAST_BLOCKS = 2
BLOCKS = 4
# Rates of the probes, relative to the estimate.
LOWEST = 0.80
HIGHEST = 1.03
LEAST_OF_LADDER = 30  # requests
PILOT = 120  # requests
MOST_PILOTS = 4
MOST_OF_LADDER = 0.97  # of the throughput of the closed ladder
STEP_UP = 1.2
STEP_DOWN = 0.8
# The figure of a closed probe that gives its throughput.
LATENCY = "mean_e2el_ms"
# The first block is enough if the interval is within this share of the estimate.
ENOUGH = 0.025
# One block moves the estimate at most by these factors: a line through four probes may be steep by
# chance.
LARGEST_MOVE = (0.75, 1.3)
# Probes farther from the root than this are not on the line any more: at low rates it bends, and a
# queue near its limit does not become steady within a probe. Below this share of the most that
# users in a closed loop sent it does.
NEAR = (0.78, 1.05)
CALM = 0.75
# The line and the falling curve through the same probes differ by more than this only where the
# line is wrong.
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
    """The rate at which `goal.share` of the requests meets the objectives.

    `ladder`: a closed loop, whose results have the figure `LATENCY`.
    """
    search = _Search(probe, ladder, goal, random.Random(seed))
    return _open_answer(search, within_budget(lambda: _send_probes(search)))


def _send_probes(search: _Search) -> None:
    first = _first_estimate(search)
    if first is not None:
        _blocks(search, _pilots(search, first))


def _first_estimate(search: _Search) -> float | None:
    """The first estimate, from a closed ladder of doubled users.

    It also gives the most requests/s that any number of them sent.

    `users` in flight with a mean latency of T send users / T requests/s (Little). If they are the
    most that meet the objectives, a random number in flight of mean a and standard deviation
    sqrt(a) stays below them for 90 % of the arrivals where a + 1.28 sqrt(a) = users; then the rate
    is a / T.
    """
    goal = search.goal
    level = 1
    best = None
    while level <= goal.most_users:
        plan = ProbePlan(level, max(LEAST_OF_LADDER, 2 * level), LADDER)
        result = try_twice(search.ladder, plan, search.steps)
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
    in_flight = (math.sqrt(Z_90**2 / 4 + users) - Z_90 / 2) ** 2
    return in_flight / latency_s


def _pilots(search: _Search, estimate: float) -> float:
    """Move the estimate with short probes until one misses and one meets the goal.

    Not beyond what users in a closed loop got, because a short probe of an overloaded server ends
    before its queue has grown.
    """
    requests = min(PILOT, search.goal.requests_of_rate)
    most = MOST_OF_LADDER * search.most_rps
    low = None
    high = None
    for _ in range(MOST_PILOTS):
        result = search.probe(
            ProbePlan(estimate, requests, PILOTING, search.goal.share)
        )
        search.pilots.append(result)
        if not result.counts:
            break

        missed_goal = 1 - result.share > 1 - search.goal.share
        if missed_goal:
            high = estimate
            estimate = STEP_DOWN * high
        else:
            low = estimate
            estimate = STEP_UP * low
        if low is not None and high is not None:
            estimate = (low + high) / 2
            break
        if low is not None and low >= most:
            break
        estimate = min(estimate, most)
    return estimate


def _blocks(search: _Search, estimate: float) -> None:
    """Four probes at a time, one in each quarter of the range around the estimate.

    The estimate moves to the root after each block.
    """
    for number in range(BLOCKS):
        places = []
        for quarter in range(BLOCK):
            places.append((quarter + search.draw.random()) / BLOCK)

        search.draw.shuffle(places)
        for place in places:
            rate = estimate * (LOWEST + (HIGHEST - LOWEST) * place)
            plan = ProbePlan(rate, search.goal.requests_of_rate, FITTING)
            search.results.append(search.probe(plan))

        fit = _root(search)
        if fit is None or fit.value <= 0:
            estimate *= _step(search)
            continue
        lowest, highest = LARGEST_MOVE
        estimate = min(max(fit.value, lowest * estimate), highest * estimate)
        is_narrow = fit.high - fit.low <= 2 * ENOUGH * fit.value
        if is_narrow and number + 1 >= LEAST_BLOCKS:
            return


def _step(search: _Search) -> float:
    """The factor of the next estimate where the probes give no line: by the block's median."""
    shares = sorted(result.share for result in search.results[-BLOCK:] if result.counts)
    if shares and shares[len(shares) // 2] >= search.goal.share:
        return STEP_UP
    return STEP_DOWN


def _root(search: _Search) -> Root | None:
    """The root of the line through the probes near it.

    First near the crossing of the falling curve, then near the root itself.
    """
    probes = _usable(search)
    value = meets(by_level(probes), search.goal.share)
    fit = None
    for _ in range(3):
        if value is None:
            break
        lowest = NEAR[0] * value
        highest = max(NEAR[1] * value, CALM * search.most_rps)
        near = [probe for probe in probes if lowest <= probe.level <= highest]
        fit = _root_of(near, search.goal.share) or fit
        value = None if fit is None else fit.value

    if fit is None or not probes[0].level <= fit.value <= probes[-1].level:
        return None  # beyond what was probed the line is a guess
    return fit


def _usable(search: _Search) -> list[ProbeResult]:
    """The probes of the line that count, by their rate."""
    probes = []
    for result in search.results:
        if result.counts:
            probes.append(result)

    return sorted(probes, key=lambda probe: probe.level)


def _root_of(probes: Sequence[ProbeResult], share: float) -> Root | None:
    rates = []
    misses = []
    counts = []
    for probe in probes:
        rates.append(probe.level)
        misses.append(len(probe.good) - int(probe.good.sum()))
        counts.append(len(probe.good))
    return root(rates, misses, counts, 1 - share)


def _open_answer(search: _Search, why: str) -> Capacity:
    everything = [*search.steps, *search.pilots, *search.results]
    fit = _root(search)
    if fit is None:
        return _bounds(search, everything, why)

    probes = _usable(search)
    curve = meets(by_level(probes), search.goal.share)
    low = fit.low
    high = fit.high
    notes = []
    # the check of the line, which need not be straight: the interval holds both answers
    if curve is not None:
        low = min(low, curve)
        high = max(high, curve)
        if abs(curve / fit.value - 1) > UNLIKE:
            notes.append(
                "the misses do not grow exponentially with the rate: "
                f"a falling curve through the probes gives {curve:.3g}/s"
            )
    for level in rises(batches_by_level(probes)):
        notes.append(
            f"not monotone at {level:.3g}/s: "
            "more requests met the objectives there than at a lower rate"
        )
    return Capacity(fit.value, max(low, 0.0), high, everything, why, notes)


def _bounds(search: _Search, everything: Sequence[ProbeResult], why: str) -> Capacity:
    """The answer where no line was found: the highest rate that met the goal."""
    met = []
    missed = []
    for probe in _usable(search):
        if probe.share >= search.goal.share:
            met.append(probe.level)
        else:
            missed.append(probe.level)

    reason = "no share falls with the rate"
    if not search.results:
        reason = "no request of the first probe succeeded"
    faults = [result.fault for result in search.results or search.steps if result.fault]
    if faults:
        reason = faults[0]
    highest = max(met, default=None)
    lowest = min(missed, default=None)
    return Capacity(highest, None, lowest, everything, why or reason)
