"""A comparison as lines for a terminal, and as Markdown, to paste into an issue or a README."""

from __future__ import annotations

from collections.abc import Iterator

from llama_load.analysis.comparison.compare import Comparison
from llama_load.analysis.reports.comparison.comparison_tables import (
    COMMANDS_TITLE,
    change_tables,
    difference_table,
    sentences,
    side_table,
)
from llama_load.outside.foreign_text import fence, markdown, printable
from llama_load.tables import markdown_lines, text_lines
from llama_load.tables.text_width import wrapped

LEAST_WIDTH = 80


def comparison_lines(comparison: Comparison, width: int = LEAST_WIDTH) -> Iterator[str]:
    """The comparison as lines of at most `width` columns, but for commands.

    A row per side with the best of each column marked by an asterisk, a table of changes per side,
    reasons, warnings, gates, differences in set-up, and what to run next.
    """
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

    for title, texts in [*sentences(comparison), *_differences(comparison)]:
        yield ""
        yield f"{title}:"
        for text in texts:
            yield from wrapped(printable(text, None), width, "- ")

    commands = comparison.next_commands
    if commands:
        yield ""
        yield f"{COMMANDS_TITLE}:"
        for line in commands:
            yield printable(line, None)


def _differences(comparison: Comparison) -> Iterator[tuple[str, list[str]]]:
    """The differences of the set-ups as one more list, if there are any."""
    texts = []
    for difference in comparison.differences:
        texts.append(f"{difference.name}: {' | '.join(difference.values)}")
    if texts:
        yield "Set-ups differ in", texts


def comparison_markdown(comparison: Comparison) -> str:
    """The comparison as Markdown: the best of each column is bold."""
    return "\n".join(_markdown(comparison)) + "\n"


def _markdown(comparison: Comparison) -> Iterator[str]:
    sides = side_table(comparison)
    yield from markdown_lines(sides)
    for _, changes in change_tables(comparison):
        yield from ("", f"### {markdown(changes.title)}", "")
        yield from markdown_lines(changes)

    yield ""
    for note in sides.notes:
        yield f"- {markdown(note)}"

    for title, texts in sentences(comparison):
        yield from ("", f"**{title}**", "")
        for text in texts:
            yield f"- {markdown(text)}"

    differences = difference_table(comparison)
    if differences is not None:
        yield from ("", f"**{differences.title}**", "")
        yield from markdown_lines(differences)

    commands = comparison.next_commands
    if commands:
        text = "\n".join(printable(line, None) for line in commands)
        mark = fence(text)
        yield from ("", f"**{COMMANDS_TITLE}**", "", f"{mark}sh", text, mark)
