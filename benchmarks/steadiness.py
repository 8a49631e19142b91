"""How often the verdict over time is wrong on queues with a constant server, and how often it sees
a server that changes.

Simulated queues with four slots and services of 1 s: open loops (Poisson arrivals) and closed ones
whose users all start at once on an idle server. Beside it a rank-sum test of the first against the
last quarter of the requests (TTFT, z > 3.1, medians 1.5 x apart), which takes neighbours in a queue
as independent. Then the steady part on the same runs, and how often the interval of a drift holds
the truth.

.venv/bin/python -m benchmarks.steadiness [SEEDS] [first] [detection] [alarms] [power] [coverage]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.harness import heading
from benchmarks.two_groups import KINDS, LOADS
from llama_load.analysis.figures.check import LIMITS
from llama_load.analysis.statistics.backlog import backlog
from llama_load.analysis.statistics.constancy import constancy, moved_in_a_third
from llama_load.analysis.statistics.constant_load import Observed
from llama_load.analysis.statistics.detection import least_detected
from llama_load.analysis.statistics.second_group import by_ttft
from llama_load.analysis.statistics.trend import ranked, slope_interval
from llama_load.analysis.topics.steady.steady_part import NONE, STEADY, steady_part
from tests.queue_runs import (
    LAWS,
    SLOTS,
    QueueRun,
    Slowdown,
    closed_loop,
    observed,
    open_loop,
    shared_loop,
)
from tests.source_runs import Case, simulated

Make = Callable[[np.random.Generator], QueueRun]

COUNTS = (100, 300, 1000)
END = 1e7


def changed(run: QueueRun, cut_s: float | None = None) -> bool:
    """Whether the verdict calls the server changed, cold at the start, or the rate too high."""
    seen = observed(run, cut_s)
    found = constancy(seen)
    sizes = [
        moved_in_a_third(each.change, seen.begin_ns, seen.end_ns)
        for each in found.changes
    ]
    return (
        max(sizes, default=1.0) > LIMITS["changed_ratio"].limit
        or (found.cold_start is not None and found.cold_start.is_cold)
        or behind(run)
    )


def behind(run: QueueRun) -> bool:
    """Whether the rate is called too high."""
    grown = (
        None if run.scheduled_ns is None else backlog(run.scheduled_ns, run.ended_ns)
    )
    return grown is not None and grown.deficit > max(
        grown.limit, LIMITS["backlog_ratio"].limit
    )


def quarters(run: QueueRun) -> bool:
    """The rank-sum test that takes neighbours as independent."""
    begun = run.started_ns >= (
        0 if run.scheduled_ns is not None else run.ended_ns.min()
    )
    ttft = run.ttft_ms[begun]
    size = len(ttft) // 4
    first, last = ttft[:size], ttft[-size:]
    above = (
        float(ranked(np.concatenate((first, last)))[size:].sum())
        - size * (size + 1) / 2
    )
    z = (above - size * size / 2) / (size * size * (2 * size + 1) / 12) ** 0.5
    return bool(z > 3.1 and np.median(last) > 1.5 * np.median(first))


def share(seeds: int, make: Make, test: Callable[[QueueRun], bool]) -> float:
    """The share of runs that a test calls out."""
    return sum(test(make(np.random.default_rng(seed))) for seed in range(seeds)) / seeds


def false_alarms(seeds: int) -> None:
    """Constant servers."""
    print(f"False alarms, {seeds} runs each (n requests):\n")
    print(
        "| loop | n | verdict | of it capacity | rank sum of quarters | steady part: steady / none / too short |"
    )
    print("|---|---:|---:|---:|---:|---:|")
    rows: list[tuple[str, int, Make]] = [
        (
            f"open, M/M/4 at {load:.0%}",
            n,
            lambda rng, n=n, load=load: open_loop(rng, n, load),
        )
        for load in (0.5, 0.7, 0.8, 0.9, 1.0)
        for n in COUNTS
    ]
    rows += [
        (
            f"open, shared by all at {load:.0%}",
            n,
            lambda rng, n=n, load=load: shared_loop(rng, n, load),
        )
        for load in (0.5, 0.8)
        for n in COUNTS
    ]
    rows += [
        (
            f"closed, {users} users, {law} {varies}",
            n,
            lambda rng, n=n, users=users, law=law, varies=varies: closed_loop(
                rng, n, users, law, varies=varies
            ),
        )
        for users in (SLOTS, 2 * SLOTS, 4 * SLOTS)
        for law, varies in (*((law, "tokens") for law in LAWS), ("lognormal", "speed"))
        for n in COUNTS
    ]
    for name, n, make in rows:
        runs = [make(np.random.default_rng(seed)) for seed in range(seeds)]
        rates = [sum(map(test, runs)) / seeds for test in (changed, behind, quarters)]
        parts = [part(run) for run in runs]
        reasons = [
            parts.count(reason) / seeds for reason in (STEADY, NONE, "too short")
        ]
        cells = [
            *(f"{rate:.1%}" for rate in rates),
            " / ".join(f"{each:.0%}" for each in reasons),
        ]
        print(f"| {name} | {n} | {' | '.join(cells)} |", flush=True)


def part(run: QueueRun) -> str:
    """The reason of the steady part."""
    return steady_part(
        run.started_ns, run.ended_ns, run.tpot_ms, scheduled_ns=run.scheduled_ns
    ).reason


def power(seeds: int) -> None:
    """Servers that change. Closed loops of four users; the run is cut by its time."""
    print(f"\nFound, {seeds} runs each:\n")
    print(f"| change | {' | '.join(LAWS)} |\n|---|---:|---:|---:|")
    cases: list[tuple[str, list[Slowdown], float | None, int]] = [
        ("10 x as slow from 20 s of 40 s", [Slowdown(20, END, 10)], 40, 2000),
        ("4 x from 40 s of 60 s", [Slowdown(40, END, 4)], 60, 2000),
        ("10 x from 30 s of 60 s", [Slowdown(30, END, 10)], 60, 2000),
        ("1.5 x from 60 s of 120 s", [Slowdown(60, END, 1.5)], 120, 2000),
        ("1.3 x from 60 s of 120 s", [Slowdown(60, END, 1.3)], 120, 2000),
        ("2 x from 20 s to 40 s of 60 s", [Slowdown(20, 40, 2)], 60, 2000),
        ("6 x for the first third of 100 requests", [Slowdown(0, 66, 6)], None, 100),
        ("twice as fast from 60 s of 90 s", [Slowdown(60, END, 0.5)], 90, 2000),
        ("nothing for 10 s of 60 s", [Slowdown(25, 35, 1e4)], 60, 2000),
    ]
    for name, changes, until_s, n in cases:
        cells = []
        for law in LAWS:

            def make(
                rng: np.random.Generator,
                n: int = n,
                law: str = law,
                changes: list[Slowdown] = changes,
                until: float | None = until_s,
            ) -> QueueRun:
                return closed_loop(
                    rng, n, SLOTS, law, changes=changes, until_s=until or END
                )

            cells.append(
                f"{share(seeds, make, lambda run, until=until_s: changed(run, until)):.0%}"
            )
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    cells = [
        f"{share(seeds, lambda rng, law=law: closed_loop(rng, 100, SLOTS, law, slow_first=60), changed):.0%}"
        for law in LAWS
    ]
    print(f"| the first prefill 60 x | {' | '.join(cells)} |")
    shared = [
        (
            "open loop shared by all, 40 % load, 2 x in the middle third",
            0.4,
            lambda s: [Slowdown(s / 3, 2 * s / 3, 2)],
        ),
        (
            "open loop shared by all, 50 % load, 1.5 x in the second half",
            0.5,
            lambda s: [Slowdown(s / 2, END, 1.5)],
        ),
    ]
    print("\n| change | 300 requests | 1000 |\n|---|---:|---:|")
    for name, load, changes_of in shared:
        cells = []
        for n in (300, 1000):
            changes = changes_of(n / (SLOTS * load))
            cells.append(
                f"{share(seeds, lambda rng, n=n, load=load, c=changes: shared_loop(rng, n, load, changes=c), changed):.0%}"
            )
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    print("\n| arrivals, of the capacity | 200 | 1000 |\n|---|---:|---:|")
    for load in (1.05, 1.1, 1.25, 1.5):
        cells = [
            f"{share(seeds, lambda rng, n=n, load=load: open_loop(rng, n, load), behind):.0%}"
            for n in (200, 1000)
        ]
        print(f"| {load:.0%} | {' | '.join(cells)} |", flush=True)


def coverage(seeds: int) -> None:
    """The 95 % interval of a drift on AR(1) noise."""
    print(f"\nIntervals of a drift (95 %) that hold the truth, {seeds} series each:\n")
    print("| slices | r = 0 | r = 0.5 | r = 0.8 |\n|---:|---:|---:|---:|")
    for n in (24, 48, 96):
        cells = []
        for r in (0.0, 0.5, 0.8):
            rng, held = np.random.default_rng(n), 0
            for _ in range(seeds):
                noise = rng.standard_normal(n)
                for at in range(1, n):
                    noise[at] = r * noise[at - 1] + (1 - r * r) ** 0.5 * noise[at]
                low, high = slope_interval(
                    np.arange(float(n)), noise + 0.02 * np.arange(n)
                )
                held += low < 0.02 < high
            cells.append(f"{held / seeds:.0%}")
        print(f"| {n} | {' | '.join(cells)} |", flush=True)


@dataclass(frozen=True, slots=True)
class Loop:
    """A closed loop of simulated requests."""

    requests: int
    users: int
    law: str
    varies: str

    def run(self, seed: int, **changed: Any) -> QueueRun:
        """One run of it."""
        rng = np.random.default_rng(seed)
        return closed_loop(
            rng, self.requests, self.users, self.law, varies=self.varies, **changed
        )


def detection(seeds: int) -> None:
    """Changes as large as the detection limit, planted into the middle third of the time: the share
    that passes unseen."""
    print(f"\nChanges as large as the detection limit, {seeds} runs each:\n")
    print(
        "| closed loop | requests | detection limit (median) | named | not judged | passed |\n|---|---:|---:|---:|---:|---:|"
    )
    kinds = [(users, law, "tokens") for users in (SLOTS, 2 * SLOTS) for law in LAWS]
    kinds.append((SLOTS, "lognormal", "speed"))
    for users, law, varies in kinds:
        for requests in (64, *COUNTS):
            loop = Loop(requests, users, law, varies)
            limits = []
            marks = []
            for seed in range(seeds):
                limit = least_detected(constancy(observed(loop.run(seed))).detects)
                if limit is not None:
                    limits.append(limit)
                    marks.append(mark_of_changed(loop, 10_000 + seed, limit))
            median = f"{np.median(limits):.2f} x" if limits else "none"
            shares = [
                f"{marks.count(mark) / len(marks):.0%}" if marks else ""
                for mark in ("✗", "?", "✓")
            ]
            print(
                f"| {users} users, {law} {varies} | {requests} | {median} | {' | '.join(shares)} |",
                flush=True,
            )


def mark_of_changed(loop: Loop, seed: int, factor: float) -> str:
    """The mark of a run with a change by this factor: it begins and ends when a third and two
    thirds of the time of the constant server are over, and the run is cut at that time."""
    end_s = float(loop.run(seed).started_ns.max()) / 1e9
    changes = [Slowdown(end_s / 3, 2 * end_s / 3, factor)]
    found = constancy(observed(loop.run(seed, changes=changes, until_s=end_s)))
    if found.changes:
        return "✗"
    limit = least_detected(found.detects)
    return (
        "✓"
        if limit is not None and limit <= LIMITS["changed_ratio"].most_detects
        else "?"
    )


def first_tokens(seeds: int) -> None:
    """TTFT at equal work of a constant server, and of one that processes prompts 1.3 or 2 times as
    slowly in the second half."""
    print(
        f"\nTTFT at equal work, called changed: {seeds} runs of each of {len(KINDS)} kinds\n"
    )
    print("| load | requests | constant | 1.3 x | 2 x |\n|---|---:|---:|---:|---:|")
    for load in LOADS:
        for requests in (100, 300):
            called = dict.fromkeys((1.0, 1.3, 2.0), 0)
            for kind in KINDS:
                case = replace(load, **kind)  # type: ignore[arg-type]
                for seed in range(seeds):
                    for factor in called:
                        called[factor] += is_first_token_changed(
                            case, requests, seed, factor
                        )
            shares = [f"{count / seeds / len(KINDS):.1%}" for count in called.values()]
            print(f"| {load.name} | {requests} | {' | '.join(shares)} |", flush=True)


def is_first_token_changed(case: Case, requests: int, seed: int, factor: float) -> bool:
    """Whether a change of TTFT at equal work is named where prompts take `factor` times as long in
    the second half."""
    server, kinds, _ = simulated(replace(case, later_prompts=factor), requests, seed)
    looked = by_ttft([server], kinds)
    quotients = np.full(requests, np.nan)
    quotients[looked.rows] = looked.quotients
    work = server.work
    nothing = np.full(requests, np.nan)
    seen = Observed(
        started_ns=work.started_ns,
        first_ns=work.first_ns,
        ended_ns=work.ended_ns,
        is_ok=np.ones(requests, dtype=np.bool_),
        is_failed=np.zeros(requests, dtype=np.bool_),
        ttft_ms=nothing,
        tpot_ms=nothing,
        e2el_ms=nothing,
        tokens=np.ones(requests),
        prompt_tokens=work.prompt_tokens,
        begin_ns=int(work.started_ns.min()),
        end_ns=int(work.started_ns.max()),
        is_even=False,
        ttft_quotients=quotients,
        is_part=True,
    )
    limit = LIMITS["changed_ratio"].limit
    return any(
        moved_in_a_third(each.change, seen.begin_ns, seen.end_ns) > limit
        for each in constancy(seen).changes
    )


TABLES = {
    "first": first_tokens,
    "detection": detection,
    "alarms": false_alarms,
    "power": power,
    "coverage": coverage,
}


def main(seeds: int, tables: Sequence[str]) -> None:
    """Print these tables."""
    print(heading())
    for name in tables:
        TABLES[name](seeds)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300, sys.argv[2:] or list(TABLES))
