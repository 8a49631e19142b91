"""Lines of the block: headlines and named figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from llama_load.tables import Table, text_lines
from llama_load.tables.numbers import fixed
from llama_load.tables.text_width import wrapped

WIDTH = 50  # of the block, as of vLLM's
TEXT_WIDTH = 78


def headline(title: str, fill: str) -> str:
    """A title centred in 50 characters of `fill`."""
    return f"{title:{fill}^{WIDTH}}"


def section(title: str, lines: Iterable[str]) -> list[str]:
    """The lines below their title; nothing without any."""
    texts = list(lines)
    if not texts:
        return []
    return [headline(title, "-"), *texts]


def table_section(tables: Iterable[Table]) -> Iterator[str]:
    """The tables as sections of the block; one without rows has its notes alone."""
    for table in tables:
        yield headline(table.title, "-")
        if table.rows:
            yield from text_lines(table, TEXT_WIDTH)
        for note in table.notes:
            yield from wrapped(f"({note})", TEXT_WIDTH, indent="  ")


def whole(name: str, value: object) -> str:
    """A line with a value as it is."""
    return f"{name:<40} {value!s:<10}"


def number(name: str, value: float | None) -> str:
    """A line with two decimals; what was not measured is n/a."""
    return whole(name, fixed(value))
