"""A table as Markdown: the best of a column is bold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from llama_load.foreign_text import markdown
from llama_load.tables.table import LEFT, PLAIN, RIGHT, Cell, Column, Table
from llama_load.tables.text_width import cell_len, padded

_COLONS = {LEFT: ("", ""), RIGHT: ("", ":"), "center": (":", ":"), "none": ("", "")}


def markdown_lines(table: Table) -> list[str]:
    """Heading row, rule and rows, in the style of the table.

    plain: `| a | b |` with the shortest rule; compact: |a|b|; spaced: | a | b |; padded: columns of equal width; llama-bench:
    padded, figures and their headings on the right.
    """
    columns, style = table.columns, table.style
    heads = [markdown(column.name) for column in columns]
    rows = [[_cell(cell) for cell in row] for row in table.cells]
    if style in (PLAIN, "compact", "spaced"):
        gap = "" if style == "compact" else " "
        rules = [_rule(column, _rule_width(column, head, style)) for column, head in zip(columns, heads, strict=True)]
        return [_joined(heads, gap), _joined(rules, gap if style == "spaced" else ""), *(_joined(row, gap) for row in rows)]
    widths = [max(column.width, *(cell_len(line[place]) for line in [heads, *rows])) for place, column in enumerate(columns)]
    is_bench = style == "llama-bench"
    sides = [is_bench and column.align == RIGHT for column in columns]
    head, *lines = (
        _joined([padded(text, width, right=right) for text, width, right in zip(line, widths, sides, strict=True)], " ")
        for line in [heads, *rows]
    )
    rule = _joined(list(map(_rule, columns, widths)), " ") if is_bench else _joined(["-" * (width + 2) for width in widths], "")
    return [head, rule, *lines]


def document_lines(title: str, tables: Sequence[Table], sections: Iterable[tuple[str, Sequence[str]]]) -> list[str]:
    """A document: tables with their notes, then sections of sentences; those without any are left out."""
    lines = [f"# {markdown(title)}", ""]
    for table in tables:
        lines += [f"## {markdown(table.title)}", ""] if table.title else []
        lines += [*markdown_lines(table), ""]
        lines += [f"- {markdown(note)}" for note in table.notes] + ([""] if table.notes else [])
    for heading, sentences in sections:
        if sentences:
            lines += [f"## {heading}", "", *(f"- {markdown(sentence)}" for sentence in sentences), ""]
    return lines


def _cell(cell: Cell) -> str:
    text = "<br>".join(map(markdown, cell.text.split("\n")))
    spread = f" ± {markdown(cell.spread)}" if cell.spread else ""
    return (f"**{text}**" if text and (cell.is_best or cell.tone) else text) + spread


def _joined(texts: Sequence[str], gap: str) -> str:
    return f"|{gap}" + f"{gap}|{gap}".join(texts) + f"{gap}|"


def _rule(column: Column, width: int) -> str:
    left, right = _COLONS[column.align]
    return left + "-" * (width - len(left) - len(right)) + right


def _rule_width(column: Column, head: str, style: str) -> int:
    return cell_len(head) if style == "compact" else 3 + len("".join(_COLONS[column.align]))
