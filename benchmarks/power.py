"""How often `compare` finds the differences that it prints as "found", and what its gates let pass.

Planted: two sides of which all figures scatter together, and from run to run the scatter follows
the one before it (an AR(1) process, a machine whose state lasts), in the order A B B A. The scatter
of each pair gives the smallest difference that would have been found with 95 % and with 80 %; then
just this difference is planted into the same runs, and `compare` judges them. For gates of 5 %: how
often a change of 0, of the limit and of twice the limit passes, fails or cannot be judged.

.venv/bin/python -m benchmarks.power [PAIRS]
"""

from __future__ import annotations

import math
import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.harness import heading
from llama_load.analysis.comparison.change_intervals import POWERS
from llama_load.analysis.comparison.compare import BETTER, WORSE, compare
from llama_load.analysis.comparison.gates import FAILED, NOT_JUDGED, PASSED, parse_gate
from llama_load.analysis.comparison.side import MeasuredRun, Side
from tests.analysis.comparison.sides import FIGURES, run

KEY = "mean_ttft_ms"
GATE = parse_gate(f"{KEY}:+5%")
SCATTERS = (0.01, 0.03)
CORRELATIONS = (0.0, 0.5)
ORDERS = ("ABBA", "ABBAAB", "ABBAABBAAB")


def correlated_sides(
    order: str, rng: random.Random, scatter: float, correlation: float
) -> list[Side]:
    """Two equal sides. `correlation`: of the machine's state in one run with that in the next."""
    state = rng.gauss(0, scatter)
    runs: dict[str, list[MeasuredRun]] = {"A": [], "B": []}
    for place, name in enumerate(order):
        own = math.sqrt(1 - correlation**2) * rng.gauss(0, scatter)
        state = correlation * state + own
        values = {}
        for key, value in FIGURES.items():
            values[key] = value * math.exp(state + rng.gauss(0, scatter / 2))
        runs[name].append(run(f"{name}-{place}", values=values, date=f"{place:04}"))
    return [Side(name, own_runs) for name, own_runs in runs.items()]


def slower(side: Side, ratio: float) -> Side:
    """The side with `KEY` larger by this ratio."""
    runs = [
        replace(each, values={**each.values, KEY: (each.value(KEY) or 0.0) * ratio})
        for each in side.runs
    ]
    return replace(side, runs=runs)


def found(sides: Sequence[Side]) -> list[bool]:
    """For each power whether the difference that would have been found is found, once it is
    planted."""
    found_from = compare(sides).changes[KEY, 1].found_from
    if found_from is None:
        return [False for _ in POWERS]
    shares = []
    for ratio in found_from:
        change = compare([sides[0], slower(sides[1], ratio)]).changes[KEY, 1]
        shares.append(change.outcome == WORSE)
    return shares


def is_alarm(sides: Sequence[Side]) -> bool:
    """Whether a difference is called real."""
    return any(
        change.outcome in (BETTER, WORSE) for change in compare(sides).changes.values()
    )


def gate_outcomes(sides: Sequence[Side], change: float) -> str:
    """The outcome of the gate where the second side is worse by this ratio."""
    (result,) = compare([sides[0], slower(sides[1], change)], [GATE]).gates
    return result.outcome


def shares_of(counter: Counter[str], pairs: int) -> str:
    """`93 / 0 / 7`: per cent that passed, failed, and could not be judged."""
    return " / ".join(
        f"{100 * counter[outcome] / pairs:.0f}"
        for outcome in (PASSED, FAILED, NOT_JUDGED)
    )


def main(pairs: int) -> None:
    """Print a row per order, scatter and correlation."""
    print(heading())
    changes = (1.0, GATE.limit, GATE.limit**2)
    print(
        "order       scatter correlation      alarms    of 95 %      of 80 %   a gate of 5 %, passed / failed / not judged: at 0, limit, twice"
    )
    for order in ORDERS:
        for scatter in SCATTERS:
            for correlation in CORRELATIONS:
                rng = random.Random(5)
                alarms = 0
                hits = [0 for _ in POWERS]
                outcomes: list[Counter[str]] = [Counter() for _ in changes]
                for _ in range(pairs):
                    sides = correlated_sides(order, rng, scatter, correlation)
                    alarms += is_alarm(sides)
                    for place, is_found in enumerate(found(sides)):
                        hits[place] += is_found
                    for place, change in enumerate(changes):
                        outcomes[place][gate_outcomes(sides, change)] += 1
                shares = "".join(f"{hit / pairs:>13.1%}" for hit in hits)
                gates = "".join(
                    f"{shares_of(counter, pairs):>24}" for counter in outcomes
                )
                print(
                    f"{order:<12}{scatter:>6.0%}{correlation:>10}{alarms / pairs:>12.1%}{shares}   {gates}",
                    flush=True,
                )


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 300)
