"""Warnings about sides that may not be what their labels say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from llama_load.comparison.side import Side
from llama_load.units import quantity


def warnings_about(sides: Sequence[Side]) -> list[str]:
    """A sentence for each."""
    return [*_same_run(sides), *_in_blocks(sides)]


def _same_run(sides: Sequence[Side]) -> Iterator[str]:
    """One run on two sides."""
    for a, b in combinations(sides, 2):
        both = {run.identity for run in a.runs if run.identity} & {run.identity for run in b.runs}
        if both:
            yield f"{a.label} and {b.label} have {quantity(len(both), 'run')} in common: a run does not differ from itself"


def _in_blocks(sides: Sequence[Side]) -> Iterator[str]:
    """All repeats of one side before all of another's: then whatever drifts looks like a difference."""
    for a, b in combinations(sides, 2):
        dates_a, dates_b = ([run.date for run in side.runs] for side in (a, b))
        if min(len(dates_a), len(dates_b)) < 2 or not all((*dates_a, *dates_b)):
            continue
        first, last = (a, b) if max(dates_a) < min(dates_b) else (b, a)
        if max(run.date for run in first.runs) < min(run.date for run in last.runs):
            yield (
                f"all runs of {first.label} are older than those of {last.label}: a machine that drifts looks like a difference; "
                "run them in turns"
            )
