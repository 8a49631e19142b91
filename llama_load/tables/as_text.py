"""A table as lines for a terminal, with an asterisk behind the best of a column."""

from __future__ import annotations

from collections.abc import Sequence

from llama_load.foreign_text import printable
from llama_load.tables.numbers import without_long_decimals
from llama_load.tables.table import LEFT, RIGHT, Cell, Column, Table
from llama_load.tables.text_width import cell_len, cut_to_width, padded, wrapped

GAP = "  "
LEAST_LABEL = 16  # columns for the first cell of a row, if the others leave them


def titled_lines(table: Table) -> list[str]:
    """The title, the table, its notes."""
    title = [printable(table.title, None), ""] if table.title else []
    return [*title, *text_lines(table), *(printable(note, None) for note in table.notes)]


def text_lines(table: Table, width: int | None = None, gap: str = GAP, *, spread_below: bool = True) -> list[str]:
    """The headings, then a line a row. None of them is longer than `width` columns, if that is possible: of a wider table, columns
    with a `drop` are left out, then long first cells are put on a line of their own, then spreads (without `spread_below` they are
    left out), and columns are one space apart."""
    places = list(range(len(table.columns)))
    dropped = sorted((place for place in places if table.columns[place].drop), key=lambda place: -table.columns[place].drop)
    for end in range(len(dropped) + 1):
        shown = _Shown(table, [place for place in places if place not in dropped[:end]], gap, has_spreads=True)
        if width is None or shown.width <= width:
            return shown.lines(shown.first_width)
    assert width is not None
    kept = [place for place in places if place not in dropped]
    if shown.room(width) < min(shown.first_width, LEAST_LABEL):
        shown = _Shown(table, kept, " ", has_spreads=False)
    beside = [place for place in sorted(dropped) if table.columns[place].align == LEFT]
    below = ["".join(f" {row[place].text}" for place in beside) for row in table.cells]
    widest = max([shown.first_width, *map(cell_len, below)])
    return shown.lines(min(widest, max(LEAST_LABEL // 2, shown.room(width))), below, width, spread_below=spread_below)


class _Shown:
    """The texts of the columns at some places of a table, and how wide they are."""

    def __init__(self, table: Table, places: Sequence[int], gap: str, *, has_spreads: bool) -> None:
        self._columns, self._gap, self._has_spreads = [table.columns[place] for place in places], gap, has_spreads
        cells = [[row[place] for place in places] for row in table.cells]
        is_ranked = table.is_ranked or any(cell.is_best for row in cells for cell in row)
        self._starred = [is_ranked and column.align == RIGHT for column in self._columns]
        self._rows = [[self._text(cell, place) for place, cell in enumerate(row)] for row in cells]
        self._spreads = [[self._spread(cell, place) for place, cell in enumerate(row)] for row in cells]
        self._heads = [
            [self._head(column, place, line) for place, column in enumerate(self._columns)]
            for line in range(max((len(column.lines) for column in self._columns), default=1) or 1)
        ]
        lines = [*self._heads, *self._rows, *([] if has_spreads else self._spreads)]
        self._widths = [max(column.width, *(cell_len(line[place]) for line in lines)) for place, column in enumerate(self._columns)]

    @property
    def first_width(self) -> int:
        return self._widths[0]

    @property
    def width(self) -> int:
        return sum(self._widths) + len(self._gap) * (len(self._widths) - 1)

    def room(self, width: int) -> int:
        """What lines of this width leave for the first column."""
        return width - self.width + self.first_width

    def lines(self, first: int, below: Sequence[str] = (), width: int = 0, *, spread_below: bool = False) -> list[str]:
        """The table with a first column of this width. `below`: what is shown under a first cell that has a line of its own."""
        self._widths[0] = first
        lines = [self._line(head) for head in self._heads if any(head)]
        for row, (cells, spreads) in enumerate(zip(self._rows, self._spreads, strict=True)):
            under = _fitting(below[row], first) if below else ""
            if cell_len(cells[0]) > first:
                lines += wrapped(cells[0], width)
                cells, under = [under, *cells[1:]], ""
            lines.append(self._line(cells))
            if spread_below and not self._has_spreads and any(spreads):
                lines.append(self._line([under, *spreads[1:]]))
        return lines

    def _line(self, texts: Sequence[str]) -> str:
        filled = (
            padded(text, width, right=column.align == RIGHT)
            for text, width, column in zip(texts, self._widths, self._columns, strict=True)
        )
        return self._gap.join(filled).rstrip()

    def _head(self, column: Column, place: int, line: int) -> str:
        lines = column.lines or (column.name,)
        return printable(lines[line] if line < len(lines) else "", None) + self._star(place)

    def _text(self, cell: Cell, place: int) -> str:
        text = without_long_decimals(printable(cell.text.replace("\n", "; "), None))
        if self._has_spreads and cell.spread:
            text += f" ± {without_long_decimals(cell.spread)}"
        return text + ("*" if cell.is_best else self._star(place))

    def _spread(self, cell: Cell, place: int) -> str:
        return f"±{without_long_decimals(cell.spread)}{self._star(place)}" if cell.spread else ""

    def _star(self, place: int) -> str:
        """The place of an asterisk, in all columns of figures, so that they are equally far apart."""
        return " " if self._starred[place] else ""


def _fitting(text: str, width: int) -> str:
    """The text without its last parts, separated by commas, if it takes more columns than this."""
    while cell_len(text) > width and "," in text:
        text = text.rpartition(",")[0]
    return cut_to_width(text, width)
