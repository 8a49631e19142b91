"""The tables of a comparison as cells, for every format: a row per side, and a row per metric of one side against the base."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from llama_load.comparison.compare import BETTER, HEADLINE, NO_TURNS, NOT_PROVEN, ONE_RUN, WORSE, Change, Comparison
from llama_load.comparison.compared_metrics import DECIMALS, metric_of
from llama_load.comparison.side import Side
from llama_load.reports.stage_table import FAILED
from llama_load.tables import LEFT, Cell, Column, Table, columns
from llama_load.tables.numbers import FACTOR_FROM, change, change_between, fixed, percent
from llama_load.units import quantity

NOT_MEASURED = "NA"
# The smallest change that would have been found, with 95 % and with 80 %.
FOUND_FROM = Column("found from (95/80 %)", lines=("found", "95/80%"))
_LEAST_WIDTH = 9  # of a figure in a terminal
COMMANDS_TITLE = "Comparable, with repeats in turns"
_ROWS_WITHOUT_REPEATS = 2  # sides: more of them, one run each, and nothing is proven: the table of sides says it all


def side_table(comparison: Comparison) -> Table:
    """A row per side: what its figures are taken from, and the headline figures with their standard deviation over its runs."""
    metrics = [metric for key in HEADLINE if (metric := metric_of(key)) is not None]
    heads = [Column("", LEFT), Column("Runs", LEFT, drop=1)]
    # `Mean TTFT (ms)` on two lines: the unit below.
    heads += [Column(metric.short, lines=tuple(metric.short.rsplit(" ", 1)), width=_LEAST_WIDTH) for metric in metrics]
    rows = [
        [Cell(side_name(comparison, index)), Cell(runs_of(side)), *(side_cell(comparison, index, metric.key) for metric in metrics)]
        for index, side in enumerate(comparison.sides)
    ]
    return Table("Sides", heads, rows, notes(comparison), is_ranked=True)


def side_cell(comparison: Comparison, index: int, key: str) -> Cell:
    """A figure of a side."""
    side = comparison.sides[index]
    mean, std = side.mean(key), side.std(key)
    if mean is None:
        return Cell(NOT_MEASURED)
    metric = metric_of(key)
    known = [value for other in comparison.sides if (value := other.mean(key)) is not None]
    decimals = DECIMALS if metric is None else metric.decimals_for(known)
    is_best = index in comparison.best.get(key, frozenset())
    return Cell(fixed(mean, decimals), mean, "" if std is None else fixed(std, decimals), is_best)


def side_name(comparison: Comparison, index: int) -> str:
    """Its label, marked if it is not ranked."""
    return comparison.sides[index].label + (f" {FAILED}" if comparison.is_unreliable(index) else "")


def runs_of(side: Side) -> str:
    """`5 runs`, `36 of 64 requests`: what its figures are taken from."""
    parts = [f"{len(side.runs)} runs"] if len(side.runs) > 1 else []
    completed, failed = (sum(counts) for counts in zip(*((run.count("completed"), run.failed) for run in side.runs), strict=True))
    parts.append(f"{completed} of {completed + failed} requests" if failed else f"{completed} requests")
    return ", ".join(parts)


def change_tables(comparison: Comparison) -> list[tuple[int, Table]]:
    """For each measured side but the base its changes; none where many sides have one run each."""
    if len(comparison.sides) > _ROWS_WITHOUT_REPEATS and not comparison.has_repeats:
        return []
    return [(index, _change_table(comparison, index)) for index in range(1, len(comparison.sides)) if comparison.sides[index].runs]


def _change_table(comparison: Comparison, index: int) -> Table:
    """A row per metric: the base's figure, this side's, the change in percent, its interval, and what is known of it."""
    rows = []
    for metric in comparison.metrics:
        difference = comparison.changes[metric.key, index]
        is_open = difference.outcome in (NOT_PROVEN, ONE_RUN, NO_TURNS)
        tone = difference.outcome if difference.outcome in (BETTER, WORSE) else ""
        rows.append([
            Cell(metric.short),
            *(replace(side_cell(comparison, place, metric.key), is_best=False) for place in (0, index)),
            Cell(NOT_MEASURED if difference.ratio is None else change(difference.ratio), difference.ratio),
            Cell("" if difference.interval is None else change_between(*difference.interval)),
            Cell(_found_from(difference)),
            Cell("not proven" if is_open else difference.outcome, tone=tone),
        ])  # fmt: skip
    base, other = (comparison.sides[place].label for place in (0, index))
    heads = [*columns("", "base", "this side", "change", "95 % interval"), FOUND_FROM, Column("", LEFT)]
    return Table(f"{other} against {base}", heads, rows)


def _found_from(difference: Change) -> str:
    """`8.1/6.2%`: the changes that would have been found with 95 % and 80 %."""
    if difference.found_from is None:
        return ""
    surely, often = difference.found_from
    if surely >= FACTOR_FROM:
        return f"x {surely:.2g}"
    digits = 1 if surely < 1.1 else 0
    return f"{100 * (surely - 1):.{digits}f}/{percent(often - 1, digits)}"


def difference_table(comparison: Comparison) -> Table | None:
    """A row per difference of the set-ups; None without any."""
    heads = columns("", *(side.label for side in comparison.sides), texts=1 + len(comparison.sides))
    rows = [[difference.name, *difference.values] for difference in comparison.differences]
    return Table("Set-ups differ in", heads, rows) if rows else None


def notes(comparison: Comparison) -> list[str]:
    """Sentences that the tables need."""
    lines = []
    if any(comparison.is_unreliable(index) for index in range(len(comparison.sides))):
        lines.append(f"{FAILED} is shown, but not ranked")
    if len(comparison.sides) < 2:
        return lines
    if not comparison.has_repeats:
        lines.append("one run a side: not proven; repeats show how much runs scatter, and so what would be found")
    else:
        judged = sum(change.p is not None for change in comparison.changes.values())
        together = f"; better and worse are real with 95 % for all {judged} judged together (Holm)" if judged else ""
        lines.append(f"intervals are 95 % each, from the scatter between runs{together}")
        if judged:
            lines.append("found: a change of this size would have been found at this scatter, with 95 % and with 80 %")
    return lines


def sentences(comparison: Comparison) -> Sequence[tuple[str, Sequence[str]]]:
    """Lists below the tables, each with its title; empty ones are left out."""
    lists = (
        ("Not ranked", _reasons(comparison)),
        ("Warnings", comparison.warnings),
        ("Gates", [f"{gate.gate.text} {gate.outcome} for {gate.side}: {gate.text}" for gate in comparison.gates]),
    )
    return [(title, texts) for title, texts in lists if texts]


def _reasons(comparison: Comparison) -> list[str]:
    """Their texts; of many pairs that differ in the same way the first ones."""
    lines = [reason.text for reason in comparison.reasons if not reason.kind]
    for kind in dict.fromkeys(reason.kind for reason in comparison.reasons if reason.kind):
        texts = list(dict.fromkeys(reason.text for reason in comparison.reasons if reason.kind == kind))
        lines += texts[:_MOST_PAIRS]
        if len(texts) > _MOST_PAIRS:
            lines.append(f"{kind}: {quantity(len(texts) - _MOST_PAIRS, 'more pair')} of sides")
    return lines


_MOST_PAIRS = 3
