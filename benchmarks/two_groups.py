"""How often one server is called two sources, and how often a second source is found, by its share
and its speed.

Simulated runs (tests/source_runs.py): open and closed loops, with and without queues, prompts one
after the other, mixed lengths, conversations, answers at their own speeds, unreported drafts,
aborts.

.venv/bin/python -m benchmarks.two_groups [SEEDS] [alarms] [power] [outliers]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchmarks.harness import heading
from llama_load.analysis.statistics.outliers import outliers
from llama_load.analysis.statistics.second_group import by_ttft
from llama_load.ground.units import NS_PER_MS
from tests.source_runs import Case, looked_at, simulated

COUNTS = (60, 150, 400)
OUTLIER_COUNTS = (20, 40, 100)
LOADS = (
    Case(name="open, M/G/4 at 50 %", load=0.5),
    Case(name="open, M/G/4 at 80 %", load=0.8),
    Case(name="open, M/G/4 at 95 %", load=0.95),
    Case(name="closed, 1 user per slot", users=4),
    Case(name="closed, 2 per slot", users=8),
    Case(name="closed, 4 per slot", users=16),
    Case(name="closed, one user", users=1, slots=1),
    Case(name="closed, 32 users without a queue", users=32, slots=200),
    Case(
        name="closed, 16 users, one prompt at a time",
        users=16,
        slots=16,
        one_by_one=True,
    ),
    Case(name="open, one prompt at a time", load=0.6, slots=16, one_by_one=True),
)
# What else is drawn; each with each of the loads.
KINDS = (
    {"prompts": "lognormal"},
    {"prompts": "bimodal"},
    {"prompts": "equal"},
    {"prompts": "bimodal", "answers": "equal"},
    {"prompts": "equal", "answers": "equal", "noise": 0.03},
    {"turns": 5},
    {"prompts": "uniform", "answers": "short", "hidden_drafts": True, "aborted": 0.1},
    {"speed": 1.0, "noise": 0.5},
)
SHARES = (0.02, 0.05, 0.12, 0.3, 0.5)
RATIOS = (15.0, 3.0, 2.0, 0.3)
POWER = Case(users=8, slots=4)


def is_doubted(case: Case, count: int, seed: int) -> bool:
    """Whether TTFT or pace are called two groups."""
    return any(looked.groups is not None for looked in looked_at(case, count, seed))


def cases_of(load: Case) -> list[Case]:
    """The load with everything else that is drawn."""
    return [replace(load, **kind) for kind in KINDS]  # type: ignore[arg-type]


def false_alarms(seeds: int) -> None:
    """One server."""
    print(
        f"One server, called two sources: {seeds} runs of each of {len(KINDS)} kinds\n"
    )
    print(
        f"| load | {' | '.join(f'{count} requests' for count in COUNTS)} |\n|---|{'---:|' * len(COUNTS)}"
    )
    of_all = 0
    for load in LOADS:
        cells = []
        for count in COUNTS:
            cases = cases_of(load)
            doubted = sum(
                is_doubted(case, count, seed) for case in cases for seed in range(seeds)
            )
            cells.append(f"{doubted / seeds / len(KINDS):.1%}")
            of_all += doubted
        print(f"| {load.name} | {' | '.join(cells)} |", flush=True)
    runs = seeds * len(KINDS) * len(LOADS) * len(COUNTS)
    print(f"\n{of_all} of {runs} runs.")


def power(seeds: int) -> None:
    """A second source, in a closed loop of eight users on four slots with prompts of mixed
    lengths."""
    for moves, what in (
        ("both", "first token and pace"),
        ("ttft", "first token alone"),
    ):
        for count in (60, 400):
            print(
                f"\n{count} requests, found of {seeds} runs; {what} this many times as fast:\n"
            )
            print(
                f"| share | {' | '.join(f'{ratio:g} x' for ratio in RATIOS)} |\n|---:|{'---:|' * len(RATIOS)}"
            )
            for share in SHARES:
                cells = []
                for ratio in RATIOS:
                    case = replace(POWER, share=share, ratio=ratio, moves=moves)
                    found = sum(is_doubted(case, count, seed) for seed in range(seeds))
                    cells.append(f"{found / seeds:.0%}")
                print(f"| {share:.0%} | {' | '.join(cells)} |", flush=True)


def outlier_alarms(seeds: int) -> None:
    """One server, and a request that is called an outlier."""
    print("\nOne server, requests called outliers:\n")
    print("| requests | runs | outliers |\n|---:|---:|---:|")
    for count in OUTLIER_COUNTS:
        cases = []
        for load in LOADS:
            cases += cases_of(load)
        accused = 0
        for case in cases:
            accused += sum(has_outlier(case, count, seed) for seed in range(seeds))
        runs = seeds * len(cases)
        print(f"| {count} | {runs} | {accused / runs:.2%} |", flush=True)


def has_outlier(case: Case, count: int, seed: int) -> bool:
    """Whether a time to the first token stands alone."""
    server, kinds, _ = simulated(case, count, seed)
    looked = by_ttft([server], kinds)
    if looked.groups is not None:
        return False
    places = np.argsort(server.rows)[looked.rows]
    begun_ns = server.work.started_ns[places]
    until_ns = server.work.first_ns[places]
    took_ms = (until_ns - begun_ns) / NS_PER_MS
    found = outliers(took_ms, looked.quotients, begun_ns, until_ns, are_alike=True)
    return found is not None


TABLES = {"alarms": false_alarms, "power": power, "outliers": outlier_alarms}


def main(seeds: int, tables: Sequence[str]) -> None:
    """Print these tables."""
    print(heading())
    for name in tables:
        TABLES[name](seeds)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20, sys.argv[2:] or list(TABLES))
