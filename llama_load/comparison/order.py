"""The order in which the runs of two sides were taken: what drifts with time must not look like a difference.

A machine gets warmer, a disk fuller, a neighbour busier. If all runs of one side come after those of the other, such a drift and a
difference of the sides are one and the same. So their order is tested by the measure of `intervals`: Welch's t of the places in
time. A pure drift gives the figures just this t, so it must be small. A B A B A B A B A B: 0.5; A B B A: 0; A A A A A B B B B B: 5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from llama_load.comparison.side import Side

# By simulation (tests/comparison/test_order.py): up to this a drift of 0 to 10 % a run raises no more false alarms than none does.
MOST_CONFOUNDED = 1.0
_MOST_SHOWN = 12  # runs whose order is written out


def against_order(base: Side, other: Side) -> str | None:
    """Why the order of their runs proves nothing; None where they took turns, or one has a single run."""
    if min(len(base.runs), len(other.runs)) < 2:
        return None
    names = f"{base.label} and {other.label}"
    dates = [[run.date for run in side.runs] for side in (base, other)]
    if not all(map(all, dates)):
        return f"when the runs of {names} were taken is not known: a machine that drifts looks like a difference"
    places = _places([*dates[0], *dates[1]])
    first, second = places[: len(dates[0])], places[len(dates[0]) :]
    if confounding(first, second) <= MOST_CONFOUNDED:
        return None
    text = f"the runs of {names} did not take turns{_shown(first, second)}: a machine that drifts looks like a difference"
    return f"{text}; run them in turns"


def confounding(base: Sequence[float], other: Sequence[float]) -> float:
    """The t that a pure drift gives two sides with these places in time, without sign; infinite where one has no scatter of its
    own. 0, 2, 4 and 1, 3, 5: 1 / sqrt(4/3 + 4/3) = 0.61."""
    means = [math.fsum(places) / len(places) for places in (base, other)]
    apart = abs(means[0] - means[1])
    error2 = math.fsum(
        math.fsum((place - mean) ** 2 for place in places) / (len(places) - 1) / len(places)
        for places, mean in zip((base, other), means, strict=True)
    )
    return apart / math.sqrt(error2) if error2 else math.inf if apart else 0.0


def _places(dates: Sequence[str]) -> list[float]:
    """Of each date its place among all; equal dates share theirs."""
    ordered = sorted(dates)
    return [ordered.index(date) + (ordered.count(date) - 1) / 2 for date in dates]


def _shown(base: Sequence[float], other: Sequence[float]) -> str:
    """` (A A B B)`; empty for many runs."""
    runs = sorted([*((place, "A") for place in base), *((place, "B") for place in other)])
    return f" ({' '.join(name for _, name in runs)})" if len(runs) <= _MOST_SHOWN else ""
