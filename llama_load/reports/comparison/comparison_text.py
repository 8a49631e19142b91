"""A comparison as lines for a terminal, and as Markdown, to paste into an issue or a README."""

from __future__ import annotations

from collections.abc import Iterator

from llama_load.comparison.compare import Comparison
from llama_load.foreign_text import fence, markdown, printable
from llama_load.reports.comparison.comparison_tables import (
    COMMANDS_TITLE,
    change_tables,
    difference_table,
    sentences,
    side_table,
)
from llama_load.tables import markdown_lines, text_lines
from llama_load.tables.text_width import wrapped

LEAST_WIDTH = 80


def comparison_lines(comparison: Comparison, width: int = LEAST_WIDTH) -> Iterator[str]:
    """The comparison: a row per side with the best of each column marked by an asterisk, a table of changes per side, reasons,
    warnings, gates, differences in set-up, and what to run next. No line but of commands is longer than `width` columns."""
    width = max(width, LEAST_WIDTH)
    sides = side_table(comparison)
    yield from text_lines(sides, width, gap=" ")
    for _, changes in change_tables(comparison):
        yield ""
        yield from wrapped(printable(changes.title, None), width)
        yield from text_lines(changes, width, spread_below=False)
    yield ""
    for note in sides.notes:
        yield from wrapped(note, width)
    lists = [*sentences(comparison)]
    if comparison.differences:
        lists.append(
            ("Set-ups differ in", [f"{difference.name}: {' | '.join(difference.values)}" for difference in comparison.differences])
        )
    for title, texts in lists:
        yield ""
        yield f"{title}:"
        for text in texts:
            yield from wrapped(printable(text, None), width, "- ")
    if commands := comparison.next_commands:
        yield ""
        yield f"{COMMANDS_TITLE}:"
        yield from (printable(line, None) for line in commands)


def comparison_markdown(comparison: Comparison) -> str:
    """The comparison as Markdown: the best of each column is bold."""
    return "\n".join(_markdown(comparison)) + "\n"


def _markdown(comparison: Comparison) -> Iterator[str]:
    sides = side_table(comparison)
    yield from markdown_lines(sides)
    for _, changes in change_tables(comparison):
        yield from ("", f"### {markdown(changes.title)}", "", *markdown_lines(changes))
    yield ""
    yield from (f"- {markdown(note)}" for note in sides.notes)
    for title, texts in sentences(comparison):
        yield from ("", f"**{title}**", "", *(f"- {markdown(text)}" for text in texts))
    if (differences := difference_table(comparison)) is not None:
        yield from ("", f"**{differences.title}**", "", *markdown_lines(differences))
    if commands := comparison.next_commands:
        text = "\n".join(printable(line, None) for line in commands)
        yield from ("", f"**{COMMANDS_TITLE}**", "", f"{fence(text)}sh", text, fence(text))
