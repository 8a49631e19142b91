"""A table as lines for a terminal, with an asterisk behind the best of a column."""

from __future__ import annotations

from collections.abc import Sequence

from llama_load.outside.foreign_text import printable
from llama_load.tables.numbers import without_long_decimals
from llama_load.tables.table import LEFT, RIGHT, Cell, Column, Table
from llama_load.tables.text_width import (
    cell_len,
    column_widths,
    cut_to_width,
    padded,
    wrapped,
)

GAP = "  "
LEAST_LABEL = 16  # columns for the first cell of a row, if the others leave them


def titled_lines(table: Table) -> list[str]:
    """The title, the table, its notes."""
    lines = []
    if table.title:
        lines += [printable(table.title, None), ""]

    lines += text_lines(table)
    for note in table.notes:
        lines.append(printable(note, None))

    return lines


def text_lines(
    table: Table, width: int | None = None, gap: str = GAP, *, spread_below: bool = True
) -> list[str]:
    """The headings, then a line a row.

    None of them is longer than `width` columns, if that is possible: of a wider table, columns with
    a `drop` are left out, then long first cells are put on a line of their own, then spreads
    (without `spread_below` they are left out), and columns are one space apart.
    """
    kept = list(range(len(table.columns)))
    shown = _Shown(table, kept, gap, has_spreads=True)
    droppable = _droppable(table)
    dropped: list[int] = []
    while width is not None and shown.width > width and droppable:
        dropped.append(droppable.pop(0))
        kept.remove(dropped[-1])
        shown = _Shown(table, kept, gap, has_spreads=True)

    if width is None or shown.width <= width:
        return shown.lines(shown.first_width)

    least_first = min(shown.first_width, LEAST_LABEL)
    if shown.room(width) < least_first:
        shown = _Shown(table, kept, " ", has_spreads=False)

    below = _dropped_texts(table, dropped)
    widest = max(map(cell_len, below), default=0)
    wanted = max(shown.first_width, widest)
    left = max(LEAST_LABEL // 2, shown.room(width))
    first = min(wanted, left)

    return shown.lines(first, below, width, spread_below=spread_below)


def _droppable(table: Table) -> list[int]:
    """The places of the columns that may be left out, the first to go first."""
    places = []
    for place, column in enumerate(table.columns):
        if column.drop:
            places.append(place)

    places.sort(key=lambda place: -table.columns[place].drop)

    return places


def _dropped_texts(table: Table, dropped: Sequence[int]) -> list[str]:
    """Of each row the texts of the columns that were left out, if they are aligned left."""
    texts = []
    for row in table.cells:
        text = ""
        for place in sorted(dropped):
            if table.columns[place].align == LEFT:
                text += f" {row[place].text}"

        texts.append(text)

    return texts


class _Shown:
    """The texts of the columns at some places of a table, and how wide they are."""

    def __init__(
        self, table: Table, places: Sequence[int], gap: str, *, has_spreads: bool
    ) -> None:
        self._columns = [table.columns[place] for place in places]
        self._gap = gap
        self._has_spreads = has_spreads
        self._starred = self._starred_columns(table, places)
        self._heads = self._head_lines()
        self._rows: list[list[str]] = []
        self._spreads: list[list[str]] = []
        for row in table.cells:
            texts = []
            spreads = []
            for shown_at, place in enumerate(places):
                cell = row[place]
                texts.append(self._text(cell, shown_at))
                spreads.append(self._spread(cell, shown_at))

            self._rows.append(texts)
            self._spreads.append(spreads)

        lines = self._heads + self._rows
        if not has_spreads:
            lines = lines + self._spreads

        self._widths = column_widths(self._columns, lines)

    def _starred_columns(self, table: Table, places: Sequence[int]) -> list[bool]:
        """Which columns leave room for the asterisk of the best."""
        is_ranked = table.is_ranked
        for row in table.cells:
            for place in places:
                is_ranked = is_ranked or row[place].is_best

        starred = []
        for column in self._columns:
            starred.append(is_ranked and column.align == RIGHT)

        return starred

    def _head_lines(self) -> list[list[str]]:
        most_lines = 1
        for column in self._columns:
            most_lines = max(most_lines, len(column.lines))

        lines = []
        for line in range(most_lines):
            heads = []
            for place, column in enumerate(self._columns):
                heads.append(self._head(column, place, line))

            lines.append(heads)

        return lines

    @property
    def first_width(self) -> int:
        return self._widths[0]

    @property
    def width(self) -> int:
        gaps = len(self._widths) - 1
        return sum(self._widths) + len(self._gap) * gaps

    def room(self, width: int) -> int:
        """What lines of this width leave for the first column."""
        return width - self.width + self.first_width

    def lines(
        self,
        first: int,
        below: Sequence[str] = (),
        width: int = 0,
        *,
        spread_below: bool = False,
    ) -> list[str]:
        """The table with a first column of this width.

        `below`: what is shown under a first cell that has a line of its own.
        """
        self._widths[0] = first
        lines = [self._line(head) for head in self._heads if any(head)]
        for row, cells in enumerate(self._rows):
            spreads = self._spreads[row]
            under = ""
            if below:
                under = _fitting(below[row], first)

            if cell_len(cells[0]) > first:
                lines += wrapped(cells[0], width)
                cells = [under, *cells[1:]]
                under = ""

            lines.append(self._line(cells))
            if spread_below and not self._has_spreads and any(spreads):
                below_cells = [under, *spreads[1:]]
                lines.append(self._line(below_cells))

        return lines

    def _line(self, texts: Sequence[str]) -> str:
        filled = []
        for text, width, column in zip(texts, self._widths, self._columns, strict=True):
            is_right = column.align == RIGHT
            filled.append(padded(text, width, right=is_right))

        return self._gap.join(filled).rstrip()

    def _head(self, column: Column, place: int, line: int) -> str:
        lines = column.lines or (column.name,)
        text = ""
        if line < len(lines):
            text = printable(lines[line], None)

        return text + self._star(place)

    def _text(self, cell: Cell, place: int) -> str:
        one_line = cell.text.replace("\n", "; ")
        text = without_long_decimals(printable(one_line, None))
        if self._has_spreads and cell.spread:
            text += f" ± {without_long_decimals(cell.spread)}"
        if cell.is_best:
            return f"{text}*"

        return text + self._star(place)

    def _spread(self, cell: Cell, place: int) -> str:
        if not cell.spread:
            return ""
        figure = without_long_decimals(cell.spread)
        return f"±{figure}{self._star(place)}"

    def _star(self, place: int) -> str:
        """The place of an asterisk.

        In all columns of figures, so that they are equally far apart.
        """
        if self._starred[place]:
            return " "
        return ""


def _fitting(text: str, width: int) -> str:
    """The text without its last parts, separated by commas, if it takes more columns than this."""
    while cell_len(text) > width and "," in text:
        text = text.rpartition(",")[0]
    return cut_to_width(text, width)
