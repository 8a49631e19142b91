"""A comparison as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len

from llama_load.comparison.compare import Comparison
from llama_load.foreign_text import printable
from llama_load.reports.comparison.comparison_tables import (
    COMMANDS_TITLE,
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
from llama_load.reports.layout import cut_to_width, padded, without_long_decimals, wrapped

LEAST_WIDTH = 80
_COLUMN = 9  # least width of a figure
_LABEL = 16  # of a label, or of "36 of 64 requests", without the last letters


def comparison_lines(comparison: Comparison, width: int = 80) -> Iterator[str]:
    """The comparison: a row per side with the best of each column marked by an asterisk, a table of changes per side, reasons,
    warnings, gates, differences in set-up, and what to run next. No line but of commands is longer than `width` columns."""
    width = max(width, LEAST_WIDTH)
    yield from _side_table(comparison, width)
    for index, rows in change_tables(comparison):
        yield ""
        base, other = (printable(comparison.sides[each].label) for each in (0, index))
        yield from wrapped(f"{other} against {base}", width)
        yield from _change_table(rows, width)
    yield ""
    for note in notes(comparison):
        yield from wrapped(note, width)
    for title, texts in sentences(comparison):
        yield ""
        yield f"{title}:"
        for text in texts:
            yield from wrapped(printable(text, None), width, "- ")
    yield from _differences(comparison, width)
    if commands := comparison.next_commands:
        yield ""
        yield f"{COMMANDS_TITLE}:"
        yield from (printable(line, None) for line in commands)


def _side_table(comparison: Comparison, width: int) -> Iterator[str]:
    rows = [side_row(comparison, index) for index in range(len(comparison.sides))]
    heads = [*_two_lines(headings())]

    def fitted(*, with_std: bool) -> tuple[list[list[str]], list[int]]:
        texts = [[_shown(each, with_std=with_std) + ("*" if each.best else " ") for each in row] for row in rows]
        return texts, [max(_COLUMN, *map(len, column)) for column in zip(*texts, *heads, strict=True)]

    texts, columns = fitted(with_std=True)
    if not (is_wide := sum(columns) + len(columns) + _LABEL <= width):
        texts, columns = fitted(with_std=False)
    label = width - sum(columns) - len(columns)
    for head in heads:
        yield _row("", label, head, columns)
    for index, cells in enumerate(texts):
        name = printable(side_name(comparison, index))
        if cell_len(name) > label:
            yield from wrapped(name, width)
            name = f" {runs_of(comparison.sides[index])}"
            yield _row(cut_to_width(name, label), label, cells, columns)
        else:
            yield _row(name, label, cells, columns)
        if not is_wide and any(each.std for each in rows[index]):
            spread = [f"±{without_long_decimals(each.std)} " if each.std else "" for each in rows[index]]
            yield _row(f"  {len(comparison.sides[index].runs)} runs", label, spread, columns)


def _two_lines(names: Sequence[str]) -> Iterator[list[str]]:
    """Headings on two lines: `Mean TTFT` and `(ms)`."""
    parts = [name.rpartition(" ")[::2] if " " in name else (name, "") for name in names]
    yield [f"{first} " for first, _ in parts]
    yield [f"{last} " for _, last in parts]


def _shown(figure: Figure, *, with_std: bool) -> str:
    mean = without_long_decimals(figure.mean)
    return f"{mean} ± {without_long_decimals(figure.std)}" if with_std and figure.std else mean


def _row(name: str, label: int, cells: Sequence[str], columns: Sequence[int]) -> str:
    aligned = (padded(cell, column, right=True) for cell, column in zip(cells, columns, strict=True))
    return " ".join([padded(name, label), *aligned]).rstrip()


def _change_table(rows: Sequence[ChangeRow], width: int) -> Iterator[str]:
    heads = ["base", "this side", "change", "95 % interval", ""]
    for with_std in (True, False):
        cells = [
            [*(_shown(each, with_std=with_std) for each in (row.base, row.other)), row.change, row.interval, row.outcome]
            for row in rows
        ]
        columns = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
        room = width - sum(columns) - len(columns) - 1
        names = min(max((len(row.name) for row in rows), default=0), room)
        if room >= _LABEL:
            break
    yield _row("", names, heads, columns)
    for row, (*figures, outcome) in zip(rows, cells, strict=True):
        yield f"{_row(cut_to_width(row.name, names), names, figures, columns[:-1])}  {outcome}".rstrip()


def _differences(comparison: Comparison, width: int) -> Iterator[str]:
    if not comparison.differences:
        return
    yield ""
    yield "Set-ups differ in:"
    for each in comparison.differences:
        yield from wrapped(printable(f"{each.name}: {' | '.join(each.values)}", None), width, "- ")
