"""The order in which the runs of two sides were taken.

What the machine does by itself must not look like a difference. Two things look like one if the
order lets them:

- a drift: it gets warmer, a disk fuller, a neighbour busier. If all runs of one side come after
  those of the other (A A B B), the drift and a difference are one and the same;
- a rhythm: the second of each pair finds a file in memory, a clock raised, a limit of power used
  up. If one side is always the second (A B A B), the rhythm and a difference are one and the same:
  where the second is 2 % faster, half of the pairs of equal servers would be called different
  (benchmarks/order.py).

Both are tested by the measure of `change_intervals`: Welch's t of the places in time (drift), and
of the places within pairs of runs (rhythm: 0, 1, 0, 1, …). A pure drift or rhythm gives the figures
just this t, so it must be small:

    order                  drift    rhythm
    A B B A                0        0
    A B B A A B B A A B    0.1      0.6
    A B A B A B A B A B    0.5      infinite
    A A A A A B B B B B    5        0.6
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from llama_load.analysis.comparison.side import Side

# By simulation (tests/analysis/comparison/test_order.py): up to this a drift or rhythm of 0 to 10 %
# a run raises no more false alarms than none does.
MOST_CONFOUNDED = 1.0
RECOMMENDED = "run them in the order A B B A"
_MOST_SHOWN = 12  # runs whose order is written out


def against_order(base: Side, other: Side) -> str | None:
    """Why the order of their runs proves nothing.

    None where they took turns, or one has a single run.
    """
    if min(len(base.runs), len(other.runs)) < 2:
        return None

    names = f"{base.label} and {other.label}"
    drifts = "a machine that drifts looks like a difference"
    base_dates = base.dates
    other_dates = other.dates
    if not all(base_dates) or not all(other_dates):
        return f"when the runs of {names} were taken is not known: {drifts}"

    places = _places([*base_dates, *other_dates])
    base_places = places[: len(base_dates)]
    other_places = places[len(base_dates) :]
    shown = _shown_order(base_places, other_places)
    if confounding(base_places, other_places) > MOST_CONFOUNDED:
        return f"the runs of {names} did not take turns{shown}: {drifts}; {RECOMMENDED}"

    base_in_pairs = _in_pairs(base_places)
    other_in_pairs = _in_pairs(other_places)
    if confounding(base_in_pairs, other_in_pairs) > MOST_CONFOUNDED:
        why = "what makes the second run of each pair faster or slower looks like a difference"
        return f"the runs of {names} always have the same order{shown}: {why}; {RECOMMENDED}"

    return None


def confounding(base: Sequence[float], other: Sequence[float]) -> float:
    """The t that a pure drift gives two sides with these places in time, without sign.

    Infinite where one has no scatter of its own. 0, 2, 4 and 1, 3, 5: 1 / sqrt(4/3 + 4/3) = 0.61.
    """
    mean_base = math.fsum(base) / len(base)
    mean_other = math.fsum(other) / len(other)
    apart = abs(mean_base - mean_other)
    error2 = _error2(base, mean_base) + _error2(other, mean_other)
    if error2:
        return apart / math.sqrt(error2)
    if apart:
        return math.inf

    return 0.0


def _error2(places: Sequence[float], mean: float) -> float:
    """The square of the standard error of their mean."""
    squares = math.fsum((place - mean) ** 2 for place in places)
    variance = squares / (len(places) - 1)

    return variance / len(places)


def _places(dates: Sequence[str]) -> list[float]:
    """Of each date its place among all; equal dates share theirs."""
    ordered = sorted(dates)
    places = []
    for date in dates:
        first = ordered.index(date)
        last = first + ordered.count(date) - 1
        places.append((first + last) / 2)
    return places


def _in_pairs(places: Sequence[float]) -> list[float]:
    """The place of each run in its pair of runs: 0 the first, 1 the second."""
    return [place % 2 for place in places]


def _shown_order(base: Sequence[float], other: Sequence[float]) -> str:
    """` (A A B B)`; empty for many runs."""
    if len(base) + len(other) > _MOST_SHOWN:
        return ""

    runs = []
    for place in base:
        runs.append((place, "A"))
    for place in other:
        runs.append((place, "B"))

    names = []
    for _, name in sorted(runs):
        names.append(name)

    return f" ({' '.join(names)})"
