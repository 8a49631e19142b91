"""Texts in columns of a terminal, in which Chinese characters take two: filled, cut, wrapped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from llama_load.tables.table import Column

# Columns for text beside a bullet or an indent, at least: in a narrower terminal lines are longer
# than it.
LEAST_TEXT = 8


def cell_len(text: str) -> int:
    """The columns that a text takes."""
    # Rich is imported when there is a text to draw, not at every start.
    from rich import cells

    return cells.cell_len(text)


def column_widths(
    columns: Sequence[Column], lines: Sequence[Sequence[str]]
) -> list[int]:
    """The widths of columns that hold the cells of these lines."""
    widths = []
    for place, column in enumerate(columns):
        width = column.width
        for line in lines:
            width = max(width, cell_len(line[place]))

        widths.append(width)

    return widths


def padded(text: str, width: int, *, right: bool = False) -> str:
    """The text filled with spaces to this many columns, aligned left or right."""
    space = " " * (width - cell_len(text))
    if right:
        return space + text
    return text + space


def cut_to_width(text: str, width: int) -> str:
    """The text, cut with an ellipsis if it takes more columns than this."""
    if cell_len(text) <= width:
        return text

    end = _most_chars(text, width - 1)

    return f"{text[:end]}…"


def wrapped(
    text: str, width: int, bullet: str = "", indent: str | None = None
) -> Iterable[str]:
    """The text in lines of at most `width` columns, broken between words.

    The first line is after `bullet`, the others are after `indent` (None: as many spaces). A longer
    word, such as a sentence in Chinese, is broken; a path or an address is not, so that it can be
    copied. Lines have room for `LEAST_TEXT` columns of text, however small the width.
    """
    if indent is None:
        indent = " " * len(bullet)

    before = max(cell_len(bullet), cell_len(indent))
    width = max(width, before + LEAST_TEXT)
    line = bullet
    is_empty = True
    for word in text.split():
        longer = f"{line} {word}"
        if is_empty:
            longer = line + word

        if not is_empty and cell_len(longer) > width:
            yield line
            line = indent
            is_empty = True
            longer = line + word

        while cell_len(longer) > width and "/" not in word:
            room = width - cell_len(line)
            end = _most_chars(word, room)
            yield line + word[:end]
            word = word[end:]
            line = indent
            longer = line + word

        line = longer
        is_empty = False

    yield line.rstrip()


def _most_chars(text: str, width: int) -> int:
    """How many of its characters fit `width` columns, at least one."""
    end = 1
    while end < len(text) and cell_len(text[: end + 1]) <= width:
        end += 1
    return end
