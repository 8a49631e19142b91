"""The tables of a comparison as cells, for every format: a row per side, and a row per metric of one side against the base."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llama_load.comparison.compare import BETTER, HEADLINE, NO_TURNS, NOT_PROVEN, ONE_RUN, WORSE, Comparison
from llama_load.comparison.compared_metrics import DECIMALS, metric_of
from llama_load.comparison.side import Side
from llama_load.reports.stage_table import FAILED
from llama_load.units import quantity

NOT_MEASURED = "NA"
COMMANDS_TITLE = "Comparable, with repeats in turns"
_ROWS_WITHOUT_REPEATS = 2  # sides: more of them, one run each, and nothing is proven: the table of sides says it all


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean over the runs of a side, their standard deviation (empty with one run), and whether it is the best."""

    mean: str
    std: str = ""
    best: bool = False

    @property
    def text(self) -> str:
        """`213.42 ± 2.10`."""
        return f"{self.mean} ± {self.std}" if self.std else self.mean


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """A metric of one side against the base: both figures, the change in percent, its interval, and what is known of it."""

    name: str
    base: Figure
    other: Figure
    change: str
    interval: str
    outcome: str
    is_better: bool
    is_worse: bool


def headings() -> list[str]:
    """The headings of the columns of `side_row`."""
    return [metric.short for key in HEADLINE if (metric := metric_of(key)) is not None]


def side_row(comparison: Comparison, index: int) -> list[Figure]:
    """The headline figures of a side."""
    return [figure(comparison, index, key) for key in HEADLINE]


def figure(comparison: Comparison, index: int, key: str) -> Figure:
    """A figure of a side."""
    side = comparison.sides[index]
    mean, std = side.mean(key), side.std(key)
    if mean is None:
        return Figure(NOT_MEASURED)
    best = index in comparison.best.get(key, frozenset())
    metric = metric_of(key)
    known = [each for side in comparison.sides if (each := side.mean(key)) is not None]
    decimals = DECIMALS if metric is None else metric.decimals_for(known)
    return Figure(f"{mean:.{decimals}f}", "" if std is None else f"{std:.{decimals}f}", best)


def side_name(comparison: Comparison, index: int) -> str:
    """Its label, marked if it is not ranked."""
    return comparison.sides[index].label + (f" {FAILED}" if comparison.is_spoilt(index) else "")


def runs_of(side: Side) -> str:
    """`5 runs`, `36 of 64 requests`: what its figures are taken from."""
    if not side.runs:
        return NOT_MEASURED
    parts = [f"{len(side.runs)} runs"] if len(side.runs) > 1 else []
    completed, failed = (sum(each) for each in zip(*((run.count("completed"), run.failed) for run in side.runs), strict=True))
    parts.append(f"{completed} of {completed + failed} requests" if failed else f"{completed} requests")
    return ", ".join(parts)


def change_tables(comparison: Comparison) -> list[tuple[int, list[ChangeRow]]]:
    """For each measured side but the base its changes; none where many sides have one run each."""
    if len(comparison.sides) > _ROWS_WITHOUT_REPEATS and not comparison.has_repeats:
        return []
    return [(index, _changes(comparison, index)) for index in range(1, len(comparison.sides)) if comparison.sides[index].runs]


def _changes(comparison: Comparison, index: int) -> list[ChangeRow]:
    rows = []
    for metric in comparison.metrics:
        change = comparison.changes[metric.key, index]
        rows.append(
            ChangeRow(
                name=metric.short,
                base=figure(comparison, 0, metric.key),
                other=figure(comparison, index, metric.key),
                change=percent(change.ratio),
                interval="" if change.interval is None else f"{percent(change.interval[0])} to {percent(change.interval[1])}",
                outcome="not proven" if change.outcome in (NOT_PROVEN, ONE_RUN, NO_TURNS) else change.outcome,
                is_better=change.outcome == BETTER,
                is_worse=change.outcome == WORSE,
            )
        )
    return rows


def percent(ratio: float | None) -> str:
    """A ratio as a change: 1.078 -> `+7.8%`; n/a where it is not known, more than doubled as a factor."""
    if ratio is None:
        return NOT_MEASURED
    return f"{ratio - 1:+.1%}" if ratio < _FACTOR_FROM else f"x {ratio:.3g}"


_FACTOR_FROM = 10.0


def notes(comparison: Comparison) -> list[str]:
    """Sentences that the tables need."""
    found = []
    if any(comparison.is_spoilt(index) for index in range(len(comparison.sides))):
        found.append(f"{FAILED} is shown, but not ranked")
    if len(comparison.sides) < 2:
        return found
    if not comparison.has_repeats:
        found.append("one run a side: not proven; five runs a side, in turns, find a difference of 10 %")
    else:
        judged = sum(change.p is not None for change in comparison.changes.values())
        together = f"; better and worse are real with 95 % for all {judged} judged together (Holm)" if judged else ""
        found.append(f"intervals are 95 % each, from the scatter between runs{together}")
    return found


def sentences(comparison: Comparison) -> Sequence[tuple[str, Sequence[str]]]:
    """Lists below the tables, each with its title; empty ones are left out."""
    lists = (
        ("Not ranked", _reasons(comparison)),
        ("Warnings", comparison.warnings),
        ("Gates", [f"{each.gate.text} {each.outcome} for {each.side}: {each.text}" for each in comparison.gates]),
    )
    return [(title, texts) for title, texts in lists if texts]


def _reasons(comparison: Comparison) -> list[str]:
    """Their texts; of many pairs that differ in the same way the first ones."""
    found = [reason.text for reason in comparison.reasons if not reason.kind]
    for kind in dict.fromkeys(reason.kind for reason in comparison.reasons if reason.kind):
        texts = [reason.text for reason in comparison.reasons if reason.kind == kind]
        found += texts[:_MOST_PAIRS]
        if len(texts) > _MOST_PAIRS:
            found.append(f"{kind}: {quantity(len(texts) - _MOST_PAIRS, 'more pair')} of sides")
    return found


_MOST_PAIRS = 3
