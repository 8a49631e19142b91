"""Tables as Markdown in the four layouts of the references, and for a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

from llama_load.foreign_text import markdown, printable
from llama_load.lab.sweep.sweep_tables import Cell, Head, MadeTable

_RULES = {"left": ("", ""), "right": ("", ":"), "center": (":", ":"), "none": ("", "")}


def markdown_lines(table: MadeTable) -> list[str]:
    """Heading row, rule and rows.

    compact: |a|b|; spaced: | a | b |; padded: columns of equal width; llama-bench: padded, figures and their headings on the right.
    """
    heads = [markdown(head.name) for head in table.heads]
    rows = [[_cell(cell) for cell in row] for row in table.rows]
    if table.style in ("compact", "spaced"):
        gap = " " if table.style == "spaced" else ""
        lines = [[*heads], *rows]
        rules = [
            _rule(head.align, 3 + len("".join(_RULES[head.align])) if gap else _width(name))
            for head, name in zip(table.heads, heads, strict=True)
        ]
        texts = [gap + f"{gap}|{gap}".join(line) + gap for line in lines]
        return [f"|{texts[0]}|", "|" + gap + f"{gap}|{gap}".join(rules) + gap + "|", *(f"|{text}|" for text in texts[1:])]
    widths = [max(head.width, *(_width(line[place]) for line in [heads, *rows])) for place, head in enumerate(table.heads)]
    is_bench = table.style == "llama-bench"
    aligned = [_padded(line, widths, table.heads if is_bench else ()) for line in [heads, *rows]]
    if is_bench:
        rules = [_rule(head.align, width) for head, width in zip(table.heads, widths, strict=True)]
        rule = "| " + " | ".join(rules) + " |"
    else:
        rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return [aligned[0], rule, *aligned[1:]]


def _cell(cell: Cell) -> str:
    text = markdown(cell.text)
    return f"**{text}**" if cell.best else text


def _rule(align: str, width: int) -> str:
    left, right = _RULES[align]
    return left + "-" * (width - len(left) - len(right)) + right


def _padded(line: Sequence[str], widths: Sequence[int], heads: Sequence[Head]) -> str:
    texts = []
    for place, (text, width) in enumerate(zip(line, widths, strict=True)):
        space = " " * (width - _width(text))
        texts.append(space + text if heads and heads[place].align == "right" else text + space)
    return "| " + " | ".join(texts) + " |"


def _width(text: str) -> int:
    """Columns in a terminal: two for wide characters such as Chinese."""
    return sum(2 if unicodedata.east_asian_width(each) in "WF" else not unicodedata.combining(each) for each in text)


def report_lines(title: str, tables: Sequence[MadeTable], sections: Iterable[tuple[str, Sequence[str]]]) -> list[str]:
    """table.md: all tables with their notes, then further sections of sentences."""
    lines = [f"# {markdown(title)}", ""]
    for table in tables:
        lines += [f"## {markdown(table.title)}", ""] if table.title else []
        lines += [*markdown_lines(table), ""]
        lines += [f"- {markdown(note)}" for note in table.notes] + ([""] if table.notes else [])
    for heading, sentences in sections:
        if sentences:
            lines += [f"## {heading}", "", *(f"- {markdown(sentence)}" for sentence in sentences), ""]
    return lines


def terminal_table(table: MadeTable) -> list[str]:
    """The table for a terminal, with an asterisk behind the best."""
    lines = [[head.name for head in table.heads]]
    lines += [
        [
            printable(cell.text) + ("*" if cell.best else " " * any(other[place].best for other in table.rows))
            for place, cell in enumerate(row)
        ]
        for row in table.rows
    ]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    found = [table.title, ""] if table.title else []
    for line in lines:
        texts = []
        for text, width, head in zip(line, widths, table.heads, strict=True):
            space = " " * (width - _width(text))
            texts.append(space + text if head.align == "right" else text + space)
        found.append("  ".join(texts).rstrip())
    return found + [printable(note) for note in table.notes]
