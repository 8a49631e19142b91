"""Lines for a terminal of 80 columns: headlines, named figures, tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len

WIDTH = 50  # of the block, as of vLLM's
TEXT_WIDTH = 78
MOST_DIGITS = len("99999.99")  # in a terminal: larger figures are shown without decimals


def headline(title: str, fill: str) -> str:
    """A title centred in 50 characters of `fill`."""
    return f"{title:{fill}^{WIDTH}}"


def whole(name: str, value: object) -> str:
    """A line with a value as it is."""
    return f"{name:<40} {value!s:<10}"


def number(name: str, value: float | None) -> str:
    """A line with two decimals; what was not measured is n/a."""
    return f"{name:<40} {'n/a':<10}" if value is None else f"{name:<40} {value:<10.2f}"


def shown(value: int | None, known: int = 0) -> object:
    """A count; n/a, or "at least `known`", where it is not known for all requests."""
    return value if value is not None else f"at least {known}" if known else "n/a"


def without_long_decimals(figure: str) -> str:
    """A figure without its decimals if it is long: 1234567.89 -> 1234568."""
    return figure if len(figure) <= MOST_DIGITS else f"{float(figure):.0f}"


def in_columns(rows: Sequence[Sequence[str]], gap: str = " ") -> Iterable[str]:
    """Rows with aligned columns: the first column left-aligned, the others right-aligned, with `gap` between them. Chinese
    characters count as two columns."""
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        fills = [" " * (width - cell_len(cell)) for cell, width in zip((first, *others), widths, strict=True)]
        cells = [first + fills[0], *(fill + cell for fill, cell in zip(fills[1:], others, strict=True))]
        yield gap.join(cells).rstrip()


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
    copied."""
    indent = " " * len(bullet) if indent is None else indent
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
