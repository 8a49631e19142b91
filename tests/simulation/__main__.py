"""Simulated swarms, seed by seed: faults of every kind against the real master and workers.

    .venv/bin/python -m tests.simulation --seeds 1000 [--from 0] [--cpu-s 600] [--planted]

Prints the shrunk story of each seed that breaks a promise, and how often each kind of fault
happened, as a table for docs/reliability.md. With --cpu-s it begins no seed after this much CPU
time. With --planted it says after how many seeds each of the bugs in `planted.py` is found.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter

os.environ["LOCUST_SKIP_MONKEY_PATCH"] = "1"

from tests.simulation.faults import KINDS
from tests.simulation.planted import PLANTED, SHOWN_BY, planted
from tests.simulation.world import run_seed, shrunk


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument(
        "--cpu-s",
        type=float,
        default=float("inf"),
        help="no seed begins after this much CPU time",
    )
    parser.add_argument("--stop-after", type=int, default=5, help="failures to print")
    parser.add_argument(
        "--planted", nargs="?", const="", help="only bugs with this text in their names"
    )
    asked = parser.parse_args()
    if asked.planted is not None:
        return find_planted(
            [name for name in PLANTED if asked.planted in name],
            asked.first,
            asked.seeds,
        )
    return search(asked.first, asked.seeds, asked.cpu_s, asked.stop_after)


def search(first: int, most: int, cpu_s: float, stop_after: int) -> int:
    """Run seeds from the first on, and print what was found and what happened."""
    begun_s = time.process_time()
    happened: Counter[str] = Counter()
    at_messages: Counter[str] = Counter()
    seed = first
    failures = 0
    requests = 0
    while (
        seed < first + most
        and failures < stop_after
        and time.process_time() - begun_s < cpu_s
    ):
        story = run_seed(seed)
        seed += 1
        requests += story.requests
        happened.update(fault.kind for fault in story.struck)
        at_messages.update(
            fault.kind for fault in story.struck if fault.message is not None
        )
        if story.broken:
            failures += 1
            print(shrunk(story), flush=True)

    seconds = time.process_time() - begun_s
    seeds = f"{seed - first:,} seeds ({first} to {seed - 1})"
    print(
        f"{seeds}, {requests:,} requests, {happened.total():,} faults, {seconds:.0f} s of CPU: {failures} failures"
    )
    print()
    print("| fault | happened | of these with a message |")
    print("|---|---:|---:|")
    for kind in sorted(KINDS):
        print(f"| {kind} | {happened[kind]:,} | {at_messages[kind]:,} |")
    return 1 if failures else 0


def find_planted(names: list[str], first: int, most: int) -> int:
    """Look for each of these planted bugs in up to so many seeds."""
    missed = 0
    for name in names:
        with planted(name):
            found = next(
                (
                    story
                    for seed in range(first, first + most)
                    if (story := run_seed(seed, SHOWN_BY.get(name))).broken
                ),
                None,
            )
            line = (
                "NOT FOUND"
                if found is None
                else f"after {found.seed - first + 1} seeds: {found.broken[0][:100]}"
            )
        missed += found is None
        print(f"{name}: {line}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
