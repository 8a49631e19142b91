"""The tables of a comparison as cells, for every format.

A row per side, and a row per metric of one side against the base.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from llama_load.analysis.comparison.compare import (
    BETTER,
    HEADLINE,
    NO_TURNS,
    NOT_PROVEN,
    ONE_RUN,
    WORSE,
    Change,
    Comparison,
)
from llama_load.analysis.comparison.compared_metrics import DECIMALS, metric_of
from llama_load.analysis.comparison.side import MeasuredRun, Side
from llama_load.analysis.reports.stage_table import FAILED
from llama_load.ground.units import quantity
from llama_load.tables import LEFT, Cell, Column, Table, columns
from llama_load.tables.numbers import (
    FACTOR_FROM,
    change,
    change_between,
    fixed,
    percent,
)

NOT_MEASURED = "NA"
# The smallest change that would have been found, with 95 % and with 80 %.
FOUND_FROM = Column("found from (95/80 %)", lines=("found", "95/80%"))
_LEAST_WIDTH = 9  # of a figure in a terminal
COMMANDS_TITLE = "Comparable, with repeats in turns"
# Sides: with more of them, one run each, nothing is proven, and the table of sides says it all.
_ROWS_WITHOUT_REPEATS = 2
# Reasons of the same kind that are named: the first pairs of sides.
_MOST_PAIRS = 3


def side_table(comparison: Comparison) -> Table:
    """A row per side: what its figures are taken from, and the headline figures.

    Each with its standard deviation over the side's runs.
    """
    heads = [Column("", LEFT), Column("Runs", LEFT, drop=1)]
    keys = []
    for key in HEADLINE:
        metric = metric_of(key)
        if metric is not None:
            keys.append(key)
            # `Mean TTFT (ms)` on two lines: the unit below.
            lines = tuple(metric.short.rsplit(" ", 1))
            heads.append(Column(metric.short, lines=lines, width=_LEAST_WIDTH))

    rows = []
    for index, side in enumerate(comparison.sides):
        row = [Cell(side_name(comparison, index)), Cell(runs_of(side))]
        row += [side_cell(comparison, index, key) for key in keys]
        rows.append(row)

    return Table("Sides", heads, rows, notes(comparison), is_ranked=True)


def side_cell(comparison: Comparison, index: int, key: str) -> Cell:
    """A figure of a side."""
    side = comparison.sides[index]
    mean = side.mean(key)
    std = side.std(key)
    if mean is None:
        return Cell(NOT_MEASURED)

    metric = metric_of(key)
    if metric is None:
        decimals = DECIMALS
    else:
        means = [other.mean(key) for other in comparison.sides]
        decimals = metric.decimals_for([value for value in means if value is not None])

    is_best = index in comparison.best.get(key, frozenset())
    spread = "" if std is None else fixed(std, decimals)

    return Cell(fixed(mean, decimals), mean, spread, is_best)


def side_name(comparison: Comparison, index: int) -> str:
    """Its label, marked if it is not ranked."""
    label = comparison.sides[index].label
    return f"{label} {FAILED}" if comparison.is_unreliable(index) else label


def runs_of(side: Side) -> str:
    """`5 runs`, `36 of 64 requests`: what its figures are taken from."""
    completed = sum(run.count("completed") for run in side.runs)
    of_all = sum(map(_of_all, side.runs))
    text = f"{completed} requests"
    if of_all > completed:
        text = f"{completed} of {of_all} requests"
    if len(side.runs) > 1:
        text = f"{len(side.runs)} runs, {text}"

    return text


def _of_all(run: MeasuredRun) -> int:
    """Of how many requests the completed ones are."""
    if run.judged_of is not None:
        return run.judged_of
    return run.count("completed") + run.failed


def change_tables(comparison: Comparison) -> list[tuple[int, Table]]:
    """For each measured side but the base its changes; none where many sides have one run each."""
    if len(comparison.sides) > _ROWS_WITHOUT_REPEATS and not comparison.has_repeats:
        return []

    tables = []
    for index in range(1, len(comparison.sides)):
        if comparison.sides[index].runs:
            tables.append((index, _change_table(comparison, index)))

    return tables


def _change_table(comparison: Comparison, index: int) -> Table:
    """A row per metric: both figures, the change in percent, its interval, what is known of it."""
    rows = []
    for metric in comparison.metrics:
        difference = comparison.changes[metric.key, index]
        ratio = difference.ratio
        interval = difference.interval
        row = [
            Cell(metric.short),
            _plain_cell(comparison, 0, metric.key),
            _plain_cell(comparison, index, metric.key),
            Cell(NOT_MEASURED if ratio is None else change(ratio), ratio),
            Cell("" if interval is None else change_between(*interval)),
            Cell(_found_from(difference)),
            _outcome(difference),
        ]
        rows.append(row)

    base = comparison.sides[0].label
    other = comparison.sides[index].label
    heads = columns("", "base", "this side", "change", "95 % interval")
    heads += [FOUND_FROM, Column("", LEFT)]

    return Table(f"{other} against {base}", heads, rows)


def _plain_cell(comparison: Comparison, index: int, key: str) -> Cell:
    """A figure of a side, not marked as best."""
    return replace(side_cell(comparison, index, key), is_best=False)


def _outcome(difference: Change) -> Cell:
    outcome = difference.outcome
    if outcome in (NOT_PROVEN, ONE_RUN, NO_TURNS):
        return Cell("not proven")
    return Cell(outcome, tone=outcome if outcome in (BETTER, WORSE) else "")


def _found_from(difference: Change) -> str:
    """`8.1/6.2%`: the changes that would have been found with 95 % and 80 %."""
    if difference.found_from is None:
        return ""

    surely, often = difference.found_from
    if surely >= FACTOR_FROM:
        return f"x {surely:.2g}"

    digits = 1 if surely < 1.1 else 0
    shown = f"{100 * (surely - 1):.{digits}f}"

    return f"{shown}/{percent(often - 1, digits)}"


def difference_table(comparison: Comparison) -> Table | None:
    """A row per difference of the set-ups; None without any."""
    if not comparison.differences:
        return None

    labels = [side.label for side in comparison.sides]
    heads = columns("", *labels, texts=1 + len(labels))
    rows = [
        [difference.name, *difference.values] for difference in comparison.differences
    ]

    return Table("Set-ups differ in", heads, rows)


def notes(comparison: Comparison) -> list[str]:
    """Sentences that the tables need."""
    lines = []
    sides = range(len(comparison.sides))
    if any(comparison.is_unreliable(index) for index in sides):
        lines.append(f"{FAILED} is shown, but not ranked")
    if len(sides) < 2:
        return lines

    if not comparison.has_repeats:
        lines.append(
            "one run a side: not proven; "
            "repeats show how much runs scatter, and so what would be found"
        )
        return lines

    intervals = "intervals are 95 % each, from the scatter between runs"
    judged = sum(change.p is not None for change in comparison.changes.values())
    if not judged:
        lines.append(intervals)
        return lines

    lines.append(
        f"{intervals}; better and worse are real with 95 % for all {judged} judged together (Holm)"
    )
    lines.append(
        "found: a change of this size would have been found at this scatter, "
        "with 95 % and with 80 %"
    )

    return lines


def sentences(comparison: Comparison) -> Sequence[tuple[str, Sequence[str]]]:
    """Lists below the tables, each with its title; empty ones are left out."""
    gates = []
    for result in comparison.gates:
        outcome = f"{result.gate.text} {result.outcome} for {result.side}"
        gates.append(f"{outcome}: {result.text}")

    lists = (
        ("Not ranked", _reasons(comparison)),
        ("Warnings", comparison.warnings),
        ("Gates", gates),
    )

    return [(title, texts) for title, texts in lists if texts]


def _reasons(comparison: Comparison) -> list[str]:
    """Their texts; of many pairs that differ in the same way the first ones."""
    lines = []
    by_kind: dict[str, list[str]] = {}
    for reason in comparison.reasons:
        if not reason.kind:
            lines.append(reason.text)
            continue

        texts = by_kind.setdefault(reason.kind, [])
        if reason.text not in texts:
            texts.append(reason.text)

    for kind, texts in by_kind.items():
        lines += texts[:_MOST_PAIRS]
        more = len(texts) - _MOST_PAIRS
        if more > 0:
            lines.append(f"{kind}: {quantity(more, 'more pair')} of sides")

    return lines
