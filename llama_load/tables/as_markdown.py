"""A table as Markdown: the best of a column is bold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from llama_load.outside.foreign_text import markdown
from llama_load.tables.table import LEFT, PLAIN, RIGHT, Cell, Column, Table
from llama_load.tables.text_width import cell_len, column_widths, padded

_COLONS = {LEFT: ("", ""), RIGHT: ("", ":"), "center": (":", ":"), "none": ("", "")}


def markdown_lines(table: Table) -> list[str]:
    """Heading row, rule and rows, in the style of the table.

    plain: `| a | b |` with the shortest rule; compact: |a|b|; spaced: | a | b |; padded: columns of
    equal width; llama-bench: padded, figures and their headings on the right.
    """
    heads = [markdown(column.name) for column in table.columns]
    rows = []
    for cells in table.cells:
        rows.append(list(map(_markdown_cell, cells)))

    if table.style in (PLAIN, "compact", "spaced"):
        return _unpadded(table, heads, rows)

    return _padded(table, heads, rows)


def _unpadded(table: Table, heads: list[str], rows: list[list[str]]) -> list[str]:
    gap = " "
    if table.style == "compact":
        gap = ""

    rule_gap = ""
    if table.style == "spaced":
        rule_gap = " "

    rules = []
    for column, head in zip(table.columns, heads, strict=True):
        width = _rule_width(column, head, table.style)
        rules.append(_rule(column, width))

    lines = [_joined_texts(heads, gap), _joined_texts(rules, rule_gap)]
    for row in rows:
        lines.append(_joined_texts(row, gap))

    return lines


def _padded(table: Table, heads: list[str], rows: list[list[str]]) -> list[str]:
    columns = table.columns
    texts = [heads, *rows]
    widths = column_widths(columns, texts)

    is_bench = table.style == "llama-bench"
    lines = []
    for line in texts:
        filled = []
        for text, width, column in zip(line, widths, columns, strict=True):
            right = is_bench and column.align == RIGHT
            filled.append(padded(text, width, right=right))

        lines.append(_joined_texts(filled, " "))

    if is_bench:
        rules = list(map(_rule, columns, widths))
        rule = _joined_texts(rules, " ")
    else:
        rules = ["-" * (width + 2) for width in widths]
        rule = _joined_texts(rules, "")

    return [lines[0], rule, *lines[1:]]


def document_lines(
    title: str, tables: Sequence[Table], sections: Iterable[tuple[str, Sequence[str]]]
) -> list[str]:
    """A document: tables with their notes, then sections of sentences.

    Sections without any are left out.
    """
    lines = [f"# {markdown(title)}", ""]
    for table in tables:
        if table.title:
            lines += [f"## {markdown(table.title)}", ""]

        lines += markdown_lines(table)
        lines.append("")
        lines += _listed(table.notes)

    for heading, sentences in sections:
        if sentences:
            lines += [f"## {heading}", ""]
            lines += _listed(sentences)

    return lines


def _listed(sentences: Sequence[str]) -> list[str]:
    """The sentences as a list with an empty line below it; nothing without any."""
    if not sentences:
        return []
    lines = [f"- {markdown(sentence)}" for sentence in sentences]
    return [*lines, ""]


def _markdown_cell(cell: Cell) -> str:
    lines = cell.text.split("\n")
    text = "<br>".join(map(markdown, lines))
    is_marked = bool(cell.is_best or cell.tone)
    if text and is_marked:
        text = f"**{text}**"
    if cell.spread:
        text += f" ± {markdown(cell.spread)}"

    return text


def _joined_texts(texts: Sequence[str], gap: str) -> str:
    inner = f"{gap}|{gap}".join(texts)
    return f"|{gap}{inner}{gap}|"


def _rule(column: Column, width: int) -> str:
    left, right = _COLONS[column.align]
    hyphens = width - len(left) - len(right)

    return left + "-" * hyphens + right


def _rule_width(column: Column, head: str, style: str) -> int:
    if style == "compact":
        return cell_len(head)
    left, right = _COLONS[column.align]
    return 3 + len(left) + len(right)
