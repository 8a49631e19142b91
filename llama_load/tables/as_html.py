"""A table as HTML: the best of a column is bold, better and worse are green and red."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator

from llama_load.foreign_text import printable
from llama_load.tables.table import RIGHT, Cell, Column, Table


def html_table(table: Table, clean: Callable[[str], str] = lambda text: printable(text, None)) -> str:
    """The table and its notes, without its title, in a card that scrolls. `clean` takes out of a text what must not be shown; then
    the text is escaped."""
    return "\n".join(_lines(table, lambda text: html.escape(clean(text))))


def _lines(table: Table, shown: Callable[[str], str]) -> Iterator[str]:
    yield f'<div class="scroll card"><table{_class("two" if len(table.columns) == 2 else "")}>'
    if any(column.name for column in table.columns):
        heads = (f'<th{_class(_align(column))} scope="col">{shown(column.name)}</th>' for column in table.columns)
        yield f"<thead><tr>{''.join(heads)}</tr></thead>"
    yield "<tbody>"
    for row in table.cells:
        cells = (
            _cell(cell, column, shown, is_first=not place)
            for place, (cell, column) in enumerate(zip(row, table.columns, strict=True))
        )
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table>"
    for note in table.notes:
        yield f'<p class="note">{shown(note)}</p>'
    yield "</div>"


def _cell(cell: Cell, column: Column, shown: Callable[[str], str], *, is_first: bool) -> str:
    tag, scope = ("th", ' scope="row"') if is_first else ("td", "")
    classes = (_align(column), "long" if column.is_long else "", "best" if cell.is_best else "", cell.tone)
    spread = f"<small> ± {shown(cell.spread)}</small>" if cell.spread else ""
    return f"<{tag}{_class(*classes)}{scope}>{'<br>'.join(map(shown, cell.text.split(chr(10))))}{spread}</{tag}>"


def _align(column: Column) -> str:
    return "n" if column.align == RIGHT else ""


def _class(*names: str) -> str:
    text = " ".join(filter(None, names))
    return f' class="{text}"' if text else ""
