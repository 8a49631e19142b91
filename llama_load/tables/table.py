"""What a table is: a title, columns, rows of cells, notes. It knows no format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from llama_load.tables.numbers import fixed

_Item = TypeVar("_Item")

LEFT = "left"
RIGHT = "right"
PLAIN = "plain"  # of Markdown: see `as_markdown`


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell as text, and what formats may make of it.

    `number`: the figure behind the text, for charts and programs; `spread`: the standard deviation,
    shown as `± spread`; `is_best`: of its column; `tone`: better, worse, warning or empty.
    """

    text: str
    number: float | None = None
    spread: str = ""
    is_best: bool = False
    tone: str = ""


Row = Sequence[Cell | str]  # a plain text is a cell of this text


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its heading with the unit, and its layout.

    `align`: left, right, center or none; `lines`: a shorter heading for terminals, of one or two
    lines; `width`: at least, in characters; `drop`: where a terminal is too narrow, columns with
    the highest number are left out first, those with 0 never; `is_long`: it holds sentences.
    """

    name: str
    align: str = RIGHT
    lines: tuple[str, ...] = ()
    width: int = 0
    drop: int = 0
    is_long: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A title, columns, rows with a cell per column, and notes below them.

    `style`: the layout in Markdown; `is_ranked`: the best of a column may be marked, so a terminal
    leaves room for the mark in every row.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    notes: Sequence[str] = ()
    style: str = PLAIN
    is_ranked: bool = False

    @property
    def cells(self) -> list[list[Cell]]:
        """The rows, plain texts as cells."""
        rows = []
        for row in self.rows:
            rows.append(list(map(_cell, row)))

        return rows

    def without(self, *places: int) -> Table:
        """The table without the columns at these places, counted from 0."""
        heads = _without(self.columns, places)
        rows = []
        for row in self.rows:
            rows.append(_without(row, places))

        return replace(self, columns=heads, rows=rows)


def _without(items: Sequence[_Item], places: Sequence[int]) -> list[_Item]:
    """The items but those at these places."""
    return [item for place, item in enumerate(items) if place not in places]


def _cell(cell: Cell | str) -> Cell:
    """A plain text as a cell."""
    if isinstance(cell, str):
        return Cell(cell)
    return cell


def columns(*names: str, texts: int = 1) -> list[Column]:
    """Columns with these headings.

    The first `texts` of them are aligned left, the others, which hold numbers, right.
    """
    heads = []
    for place, name in enumerate(names):
        align = RIGHT
        if place < texts:
            align = LEFT

        heads.append(Column(name, align))

    return heads


def figure(value: float | None, digits: int = 2) -> Cell:
    """The cell of a number with this many decimals; n/a if it is unknown."""
    return Cell(fixed(value, digits), value)


def whole(value: int) -> Cell:
    """The cell of a whole number."""
    return Cell(str(value), value)


def text_of(cell: Cell) -> str:
    """The text of a cell, with its spread: `213.42 ± 2.10`."""
    if not cell.spread:
        return cell.text
    return f"{cell.text} ± {cell.spread}"


def table_json(table: Table) -> dict[str, Any]:
    """The table for programs.

    Headings, and each cell with its text, its number and whether it is the best.
    """
    rows = []
    for row in table.cells:
        rows.append(list(map(_cell_json, row)))

    return {
        "title": table.title,
        "columns": [column.name for column in table.columns],
        "rows": rows,
        "notes": list(table.notes),
    }


def _cell_json(cell: Cell) -> dict[str, Any]:
    return {"text": text_of(cell), "best": cell.is_best, "value": cell.number}
