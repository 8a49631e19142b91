"""A table as HTML: the best of a column is bold, better and worse are green and red."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator

from llama_load.outside.foreign_text import printable
from llama_load.tables.table import RIGHT, Cell, Column, Table


def html_table(
    table: Table, clean: Callable[[str], str] = lambda text: printable(text, None)
) -> str:
    """The table and its notes, without its title, in a card that scrolls.

    `clean` takes out of a text what must not be shown; then the text is escaped.
    """

    def shown(text: str) -> str:
        return html.escape(clean(text))

    return "\n".join(_lines(table, shown))


def _lines(table: Table, shown: Callable[[str], str]) -> Iterator[str]:
    width = ""
    if len(table.columns) == 2:
        width = "two"

    # With the keyboard it scrolls where it has the focus; its title is the heading above it.
    yield f'<div class="scroll card" tabindex="0"><table{_class(width)}>'
    if any(column.name for column in table.columns):
        heads = ""
        for column in table.columns:
            align = _class(_align(column))
            heads += f'<th{align} scope="col">{shown(column.name)}</th>'

        yield f"<thead><tr>{heads}</tr></thead>"

    yield "<tbody>"
    for row in table.cells:
        cells = ""
        is_first = True
        for cell, column in zip(row, table.columns, strict=True):
            cells += _html_cell(cell, column, shown, is_first=is_first)
            is_first = False

        yield f"<tr>{cells}</tr>"

    yield "</tbody></table>"
    for note in table.notes:
        yield f'<p class="note">{shown(note)}</p>'

    yield "</div>"


def _html_cell(
    cell: Cell, column: Column, shown: Callable[[str], str], *, is_first: bool
) -> str:
    names = [_align(column)]
    if column.is_long:
        names.append("long")
    if cell.is_best:
        names.append("best")

    names.append(cell.tone)
    classes = _class(*names)
    lines = cell.text.split("\n")
    text = "<br>".join(map(shown, lines))
    if cell.spread:
        text += f"<small> ± {shown(cell.spread)}</small>"
    if is_first:
        return f'<th{classes} scope="row">{text}</th>'

    return f"<td{classes}>{text}</td>"


def _align(column: Column) -> str:
    if column.align == RIGHT:
        return "n"
    return ""


def _class(*names: str) -> str:
    text = " ".join(filter(None, names))
    if not text:
        return ""
    return f' class="{text}"'
