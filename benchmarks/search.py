"""Whether searches and stopping rules keep their word, on queues whose truth is known.

- 50 searches of the most users, in closed loops of 8 and 32 slots (capacities of 10, 20 and 43
  users); also with prompts of two kinds, of which 15 % take eleven times as long
- 50 searches of the most requests/s, on M/M/8 and M/M/32 (90 % within a wait; the truth by Erlang
  C)
- 50 tunings of a server with a known best setting, whose speed drifts by 5 % from block to block
  and scatters by 2 %
- 200 runs of --until on M/M/8, M/M/32 at loads of 0.5 to 0.9, and in closed loops of 16, 32 and 64
  users on 8 slots; beside it the usual rule, intervals for independent values, looked at every 100
  requests

.venv/bin/python -m benchmarks.search
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from benchmarks.queues import (
    Times,
    closed_capacity,
    closed_latency_quantile,
    closed_share,
    closed_waits,
    open_capacity,
    open_latency_quantile,
    open_waits,
)
from llama_load.analysis.statistics.statistics import percentile_interval
from llama_load.lab.search.closed import search_users
from llama_load.lab.search.open_loop import LATENCY, search_rate
from llama_load.lab.search.search_probe import Capacity, Goal, ProbePlan, ProbeResult
from llama_load.lab.tune.race import NoScore, race
from llama_load.run_folder.vocabulary.until import Requests, Until, UntilRule

SEARCHES, RUNS = 50, 200
SHARE = 0.9
USERS = ((10, 8), (20, 8), (43, 32))  # capacity, slots
RATES = ((8, 0.5), (8, 0.05), (8, 1.5), (32, 0.2), (1, 3.0))  # slots, wait
MOST_REQUESTS = 40_000  # the cap of --until
LOADS = (0.5, 0.7, 0.8, 0.85, 0.9)
IN_FLIGHT = (16, 32, 64)
FIGURES = ((99.0, 0.10), (50.0, 0.05))  # percentile, precision
PEEK = 100  # requests between the looks of the usual rule


@dataclass(frozen=True)
class Tally:
    """Of several searches: the share whose interval held the truth, the share that was close,
    requests, mean width."""

    covered: float
    close: float
    median_sent: float
    most_sent: int
    width: float


def wait_for_capacity(users: int, slots: int) -> float:
    """A wait that `users` keep for 90 % of their requests and one user more does not: between the
    waits of both."""

    def least(count: int) -> float:
        low, high = 1e-9, 100.0
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (
                (low, middle)
                if closed_share(middle, count, slots) >= SHARE
                else (middle, high)
            )
        return high

    return (least(users) + least(users + 1)) / 2


def judged(
    plan: ProbePlan,
    good: NDArray[np.bool_],
    ends: Times,
    *,
    beside: int = 0,
    first: int = 0,
) -> ProbeResult:
    """A probe, with `beside` unmeasured requests. It ends with the miss after which `plan.needed`
    is out of reach; what is in flight then is cut. The `first` requests are not judged."""
    is_whole = True
    if plan.needed is not None:
        missed = np.cumsum(~good[np.argsort(ends)])
        last = int(
            np.searchsorted(missed, (1 - plan.needed) * len(good) + 1e-9, side="right")
        )
        if last < len(good):
            good, is_whole = good[ends <= np.sort(ends)[last]], False
    return ProbeResult(plan.level, good[first:], len(good) + beside, is_whole=is_whole)


@cache
def bimodal_wait_for_capacity(users: int, slots: int) -> float:
    """The same with prompts of two kinds, by simulation: 200 000 requests for each of both numbers
    of users."""
    draw = np.random.default_rng(0)

    def least(count: int) -> float:
        _, waits, _ = closed_waits(count, slots, 5500, 40, draw, is_bimodal=True)
        return float(np.quantile(waits[:, 500:], SHARE))

    return (least(users) + least(users + 1)) / 2


def search_of_users(
    users: int, slots: int, seed: int, *, is_bimodal: bool = False
) -> Capacity:
    """One search in a simulated closed loop. `is_bimodal`: of short and long prompts."""
    draw = np.random.default_rng(seed)
    if is_bimodal:
        limit = bimodal_wait_for_capacity(users, slots)
    else:
        limit = wait_for_capacity(users, slots)
        assert closed_capacity(limit, slots, SHARE) == users

    def probe(plan: ProbePlan) -> ProbeResult:
        first = int(plan.level)
        starts, waits, services = closed_waits(
            first, slots, plan.requests + first, 1, draw, is_bimodal=is_bimodal
        )
        ends = starts + waits + services
        return judged(
            plan, waits[0, first:] <= limit, ends[0, first:], beside=2 * first
        )

    return search_users(probe, Goal(SHARE), seed)


def search_of_rate(slots: int, limit: float, seed: int) -> Capacity:
    """One search on a simulated M/M/k queue; rates are requests per mean service time."""
    draw = np.random.default_rng(seed)

    def probe(plan: ProbePlan) -> ProbeResult:
        starts, waits, services = open_waits(
            plan.level / slots, slots, plan.requests, 1, draw
        )
        return judged(
            plan,
            waits[0] <= limit,
            (starts + waits + services)[0],
            first=plan.requests // 10,
        )

    def ladder(plan: ProbePlan) -> ProbeResult:
        first = int(plan.level)
        _, waits, services = closed_waits(first, slots, plan.requests + first, 1, draw)
        latency_ms = 1e3 * float((waits + services)[0, first:].mean())
        return ProbeResult(
            plan.level,
            waits[0, first:] <= limit,
            plan.requests + first,
            figures={LATENCY: latency_ms},
        )

    return search_rate(probe, ladder, Goal(SHARE), seed)


def tally(found: list[Capacity], truth: float, least: float) -> Tally:
    """`least`: an answer within this of the truth is close, as one within 5 % is."""
    held = [
        each.low is not None
        and each.high is not None
        and each.low <= truth <= each.high
        for each in found
    ]
    near = [
        each.value is not None and abs(each.value - truth) <= max(least, 0.05 * truth)
        for each in found
    ]
    widths = [
        (each.high - each.low) / truth
        for each in found
        if each.high is not None and each.low is not None
    ]
    sent = [each.sent for each in found]
    return Tally(
        float(np.mean(held)),
        float(np.mean(near)),
        float(np.median(sent)),
        max(sent),
        float(np.median(widths)),
    )


@dataclass(frozen=True)
class Stopped:
    """Of several runs: the share that ended early, of these the share whose interval held the
    truth, and the requests at the end."""

    ended: float
    covered: float | None
    median_sent: float | None


@dataclass(frozen=True)
class Queue:
    """Simulated runs: instants of start, latencies, the true percentiles."""

    starts: Times
    latencies: Times
    truths: dict[float, float]
    is_open: bool
    users: int
    slots: int


def open_queue(
    load: float, slots: int, count: int, runs: int, draw: np.random.Generator
) -> Queue:
    """Runs of M/M/k."""
    starts, waits, services = open_waits(load, slots, count, runs, draw)
    truths = {p: open_latency_quantile(p / 100, load, slots) for p, _ in FIGURES}
    return Queue(starts, waits + services, truths, True, 0, slots)


def closed_queue(
    users: int, slots: int, count: int, runs: int, draw: np.random.Generator
) -> Queue:
    """Runs of a closed loop."""
    starts, waits, services = closed_waits(users, slots, count, runs, draw)
    truths = {
        p: closed_latency_quantile(p / 100, users, slots, draw) for p, _ in FIGURES
    }
    return Queue(starts, waits + services, truths, False, users, slots)


def until_runs(queue: Queue, percentile: float, within: float) -> Stopped:
    """Each run until the rule ends it."""
    until = Until(f"p{percentile:g}_e2el:{within:.0%}", within, "e2el", percentile)

    def run(starts: Times, latencies: Times) -> tuple[int, float, float] | None:
        rule = UntilRule(
            until, is_open=queue.is_open, users=queue.users, slots=queue.slots
        )
        while (count := rule.next_at) <= len(starts):
            look = rule.look(
                Requests(
                    latencies[:count], starts[:count], (starts + latencies)[:count]
                )
            )
            if (
                look is not None
                and look.may_end
                and look.value is not None
                and look.within is not None
            ):
                return (
                    count,
                    look.value * (1 - look.within),
                    look.value * (1 + look.within),
                )
        return None

    return _stopped(queue, percentile, run)


def independent_runs(queue: Queue, percentile: float, within: float) -> Stopped:
    """The same with intervals for independent values (order statistics), looked at every 100
    requests."""

    def run(_: Times, latencies: Times) -> tuple[int, float, float] | None:
        for count in range(PEEK, len(latencies) + 1, PEEK):
            ordered = np.sort(latencies[:count])
            low, high = percentile_interval(ordered, percentile)
            if (
                low is not None
                and high is not None
                and high - low <= 2 * within * float(np.percentile(ordered, percentile))
            ):
                return count, low, high
        return None

    return _stopped(queue, percentile, run)


def _stopped(
    queue: Queue,
    percentile: float,
    run: Callable[[Times, Times], tuple[int, float, float] | None],
) -> Stopped:
    found = [
        run(starts, latencies)
        for starts, latencies in zip(queue.starts, queue.latencies, strict=True)
    ]
    ended = [each for each in found if each is not None]
    if not ended:
        return Stopped(0.0, None, None)
    held = [low <= queue.truths[percentile] <= high for _, low, high in ended]
    return Stopped(
        len(ended) / len(found),
        float(np.mean(held)),
        float(np.median([count for count, _, _ in ended])),
    )


# A server by its flags: slots, type of the cache; batch, threads, flash attention; draft tokens.
# The default comes first.
SPEEDS = (
    ((1, 0.5), (2, 0.8), (4, 1.0), (8, 0.9)),
    ((1, 1.0), (2, 1.05)),
    ((512, 0.9), (1024, 1.0), (2048, 1.0)),
    ((4, 0.85), (8, 1.0)),
    ((0, 0.9), (1, 1.0)),
    ((0, 1.0), (8, 1.12)),
)
STAGED = ((0, 1), (2, 3, 4), (5,))  # settings of each stage
DRIFT, SCATTER = 0.05, 0.02
BEST_WITHIN = 0.03


@dataclass(frozen=True)
class Tuning:
    """The speed that a tuning found, as a share of the best, and its runs; beside it the best of
    one run of every combination."""

    found: float
    runs: int
    found_by_grid: float


def tuning(seed: int, disturbed: float = 0.0) -> Tuning:
    """One tuning of the simulated server; this share of the runs has no score by chance."""
    draw = np.random.default_rng(seed)
    disturbances = np.random.default_rng((seed, 1))
    places = [0] * len(SPEEDS)
    runs = 0

    def speed(chosen: list[int]) -> float:
        return float(
            np.prod(
                [values[place][1] for values, place in zip(SPEEDS, chosen, strict=True)]
            )
        )

    for number, settings in enumerate(STAGED):
        combinations = list(
            itertools.product(*(range(len(SPEEDS[setting])) for setting in settings))
        )
        drifts: dict[int, float] = {}

        def run(place: int, block: int, combinations: list[tuple[int, ...]] = combinations, settings: tuple[int, ...] = settings,
                drifts: dict[int, float] = drifts) -> float:  # fmt: skip
            nonlocal runs
            runs += 1
            if disturbances.random() < disturbed:
                raise NoScore("CLIENT-BOUND", may_pass=True)
            drift = drifts.setdefault(block, float(draw.normal(0, DRIFT)))
            chosen = list(places)
            for setting, each in zip(settings, combinations[place], strict=True):
                chosen[setting] = each
            return speed(chosen) * math.exp(drift + float(draw.normal(0, SCATTER)))

        winner = race(len(combinations), run, seed + number).winner
        for setting, each in zip(settings, combinations[winner], strict=True):
            places[setting] = each
    every = list(itertools.product(*(range(len(values)) for values in SPEEDS)))
    once = [
        speed(list(each)) * math.exp(float(draw.normal(0, math.hypot(DRIFT, SCATTER))))
        for each in every
    ]
    best = max(speed(list(each)) for each in every)
    return Tuning(
        speed(places) / best, runs, speed(list(every[int(np.argmax(once))])) / best
    )


def main() -> None:
    """Print the tables."""
    print(
        "| search | truth | interval holds it | answer close | requests, median | most | width, median |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|")
    for users, slots in USERS:
        row = tally(
            [search_of_users(users, slots, seed) for seed in range(SEARCHES)],
            users,
            1.0,
        )
        print(_row(f"users, {slots} slots", f"{users} users", row), flush=True)
    for users, slots in USERS[1:]:
        found = [
            search_of_users(users, slots, seed, is_bimodal=True)
            for seed in range(SEARCHES)
        ]
        print(
            _row(
                f"users, {slots} slots, two kinds of prompts",
                f"{users} users",
                tally(found, users, 1.0),
            ),
            flush=True,
        )
    for slots, limit in RATES:
        truth = open_capacity(limit, slots, SHARE) * slots
        row = tally(
            [search_of_rate(slots, limit, seed) for seed in range(SEARCHES)], truth, 0.0
        )
        print(
            _row(
                f"rate, M/M/{slots}, 90 % within {limit:g}",
                f"load {truth / slots:.2f}",
                row,
            ),
            flush=True,
        )
    tunings = [tuning(seed) for seed in range(SEARCHES)]
    combinations = math.prod(map(len, SPEEDS))
    print(f"\nTuning: within {BEST_WITHIN:.0%} of the best in {sum(each.found >= 1 - BEST_WITHIN for each in tunings)} of {SEARCHES}, with "
          f"{np.median([each.runs for each in tunings]):.0f} runs (most {max(each.runs for each in tunings)}); one run of each of the "
          f"{combinations} combinations: in {sum(each.found_by_grid >= 1 - BEST_WITHIN for each in tunings)}")  # fmt: skip
    print(
        "\n| queue | figure | ended early | interval holds the truth | requests, median | independent: holds the truth |"
    )
    print("|---|---|---:|---:|---:|---:|")
    draw = np.random.default_rng(1)
    queues = [(f"M/M/{slots} at {load:g}", lambda load=load, slots=slots: open_queue(load, slots, MOST_REQUESTS, RUNS, draw))
              for slots in (8, 32) for load in LOADS]  # fmt: skip
    queues += [(f"closed, {users} users on 8 slots", lambda users=users: closed_queue(users, 8, MOST_REQUESTS, RUNS, draw))
               for users in IN_FLIGHT]  # fmt: skip
    for name, make in queues:
        queue = make()
        for percentile, within in FIGURES:
            ours, usual = (
                until_runs(queue, percentile, within),
                independent_runs(queue, percentile, within),
            )
            figure = f"p{percentile:g} ± {100 * within:g} %"
            print(f"| {name} | {figure} | {_share(ours.ended)} | {_share(ours.covered)} | "
                  f"{'' if ours.median_sent is None else f'{ours.median_sent:.0f}'} | {_share(usual.covered)} |", flush=True)  # fmt: skip


def _row(name: str, truth: str, row: Tally) -> str:
    return f"| {name} | {truth} | {_share(row.covered)} | {_share(row.close)} | {row.median_sent:.0f} | {row.most_sent} | {_share(row.width)} |"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}".replace("%", " %")


if __name__ == "__main__":
    main()
