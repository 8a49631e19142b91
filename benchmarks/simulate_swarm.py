"""Simulated swarms, seed by seed: faults of every kind against the real master and workers.

    .venv/bin/python -m benchmarks.simulate_swarm --seeds 1000 [--from 0] [--planted]

Prints the shrunk story of each seed that breaks a promise (docs/reliability.md), and counts by kind of fault. With
--planted it says after how many seeds each of the bugs in `planted.py` is found.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter

os.environ["LOCUST_SKIP_MONKEY_PATCH"] = "1"

from benchmarks.swarm_simulation.planted import PLANTED, SHOWN_BY, planted
from benchmarks.swarm_simulation.world import run_seed, shrunk


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--stop-after", type=int, default=5, help="failures to print")
    parser.add_argument("--planted", nargs="?", const="", help="only bugs with this text in their names")
    asked = parser.parse_args()
    if asked.planted is not None:
        return find_planted([name for name in PLANTED if asked.planted in name], asked.first, asked.seeds)
    begun_s = time.process_time()
    kinds: Counter[str] = Counter()
    failures = requests = turns = 0
    for seed in range(asked.first, asked.first + asked.seeds):
        story = run_seed(seed)
        kinds.update(fault.kind for fault in story.faults)
        requests += story.requests
        turns += story.turns
        if story.broken:
            failures += 1
            print(shrunk(story), flush=True)
            if failures >= asked.stop_after:
                break
    seconds = time.process_time() - begun_s
    print(f"{asked.seeds} seeds, {requests} requests, {turns} turns, {seconds:.0f} s of CPU: {failures} failures")
    for kind, count in sorted(kinds.items()):
        print(f"  {count:6}  {kind}")
    return 1 if failures else 0


def find_planted(names: list[str], first: int, most: int) -> int:
    """Look for each of these planted bugs in up to so many seeds."""
    missed = 0
    for name in names:
        with planted(name):
            found = next(
                (story for seed in range(first, first + most) if (story := run_seed(seed, SHOWN_BY.get(name))).broken), None
            )
            line = "NOT FOUND" if found is None else f"after {found.seed - first + 1} seeds: {found.broken[0][:100]}"
        missed += found is None
        print(f"{name}: {line}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
