"""Texts in columns of a terminal, in which Chinese characters take two: filled, cut, wrapped."""

from __future__ import annotations

from collections.abc import Iterable

# Columns for text beside a bullet or an indent, at least: in a narrower terminal lines are longer than it.
LEAST_TEXT = 8


def cell_len(text: str) -> int:
    """The columns that a text takes. Rich is imported when there is one to draw, not at every start."""
    from rich import cells

    return cells.cell_len(text)


def padded(text: str, width: int, *, right: bool = False) -> str:
    """The text filled with spaces to this many columns, aligned left or right."""
    space = " " * (width - cell_len(text))
    return space + text if right else text + space


def cut_to_width(text: str, width: int) -> str:
    """The text, cut with an ellipsis if it takes more columns than this."""
    return text if cell_len(text) <= width else text[: _most_chars(text, width - 1)] + "…"


def wrapped(text: str, width: int, bullet: str = "", indent: str | None = None) -> Iterable[str]:
    """The text in lines of at most `width` columns, broken between words: the first after `bullet`, the others after `indent`
    (None: as many spaces). A longer word, such as a sentence in Chinese, is broken; a path or an address is not, so that it can be
    copied. Lines have room for `LEAST_TEXT` columns of text, however small the width."""
    indent = " " * len(bullet) if indent is None else indent
    width = max(width, max(cell_len(bullet), cell_len(indent)) + LEAST_TEXT)
    line, is_empty = bullet, True
    for word in text.split():
        while True:
            space = "" if is_empty else " "
            if cell_len(line + space + word) <= width:
                line, is_empty = line + space + word, False
                break
            if is_empty and "/" in word:
                line, is_empty = line + word, False
                break
            if is_empty:
                end = _most_chars(word, width - cell_len(line))
                yield line + word[:end]
                line, word = indent, word[end:]
            else:
                yield line
                line, is_empty = indent, True
    yield line.rstrip()


def _most_chars(text: str, width: int) -> int:
    """How many of its characters fit `width` columns, at least one."""
    end = 1
    while end < len(text) and cell_len(text[: end + 1]) <= width:
        end += 1
    return end
