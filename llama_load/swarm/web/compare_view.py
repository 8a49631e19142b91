"""The comparison of two or more runs, as tables of the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from llama_load.comparison.compare import Comparison, compare
from llama_load.comparison.sources import read_groups
from llama_load.foreign_text import printable
from llama_load.reports.comparison.tables import (
    ChangeRow,
    Figure,
    change_tables,
    headings,
    notes,
    runs_of,
    sentences,
    side_name,
    side_row,
)

# More sides are no table that a person can read.
MOST_RUNS = 20


@dataclass(frozen=True, slots=True)
class CompareView:
    """A comparison: of whole runs (no title), or of the stage that they have in common."""

    title: str
    headings: Sequence[str]
    sides: Sequence[tuple[str, str, Sequence[Figure]]]
    changes: Sequence[tuple[str, str, Sequence[ChangeRow]]]
    notes: Sequence[str]
    sentences: Sequence[tuple[str, Sequence[str]]]
    differences: Sequence[tuple[str, Sequence[str]]]


def compare_views(folders: Sequence[Path]) -> list[CompareView]:
    """The comparisons of these run folders; the first is the base. UsageError: one cannot be read."""
    groups, _ = read_groups([str(folder) for folder in folders])
    return [_view(group.title, compare(group.sides)) for group in groups]


def _view(title: str, comparison: Comparison) -> CompareView:
    names = [printable(side_name(comparison, index)) for index in range(len(comparison.sides))]
    return CompareView(
        title=printable(title),
        headings=headings(),
        sides=[(names[index], runs_of(side), side_row(comparison, index)) for index, side in enumerate(comparison.sides)],
        changes=[(names[index], names[0], rows) for index, rows in change_tables(comparison)],
        notes=notes(comparison),
        sentences=[(name, [printable(text) for text in texts]) for name, texts in sentences(comparison)],
        differences=[(printable(each.name), [printable(str(value)) for value in each.values]) for each in comparison.differences],
    )
