"""A comparison as Markdown, to paste into an issue or a README."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llama_load.comparison.compare import Comparison
from llama_load.foreign_text import fence, markdown, printable
from llama_load.reports.comparison.comparison_tables import (
    COMMANDS_TITLE,
    ChangeRow,
    Figure,
    change_tables,
    headings,
    notes,
    runs_of,
    sentences,
    side_name,
    side_row,
)


def comparison_markdown(comparison: Comparison) -> str:
    """The comparison as Markdown: the best of each column is bold."""
    return "\n".join(_lines(comparison)) + "\n"


def _lines(comparison: Comparison) -> Iterator[str]:
    names = headings()
    yield from _table(
        ["", "Runs", *names],
        [
            [markdown(side_name(comparison, index)), markdown(runs_of(side)), *map(_cell, side_row(comparison, index))]
            for index, side in enumerate(comparison.sides)
        ],
        left=2,
    )
    for index, rows in change_tables(comparison):
        base, other = (markdown(comparison.sides[each].label) for each in (0, index))
        yield ""
        yield f"### {other} against {base}"
        yield ""
        yield from _table(["", base, other, "change", "95 % interval", ""], [_change(row) for row in rows], left=1)
    yield ""
    for note in notes(comparison):
        yield f"- {markdown(note)}"
    for title, texts in sentences(comparison):
        yield ""
        yield f"**{title}**"
        yield ""
        yield from (f"- {markdown(text)}" for text in texts)
    if comparison.differences:
        yield ""
        yield "**Set-ups differ in**"
        yield ""
        heads = ["", *(markdown(side.label) for side in comparison.sides)]
        yield from _table(
            heads, [[markdown(each.name), *map(markdown, each.values)] for each in comparison.differences], left=len(heads)
        )
    if commands := comparison.next_commands:
        text = "\n".join(printable(line, None) for line in commands)
        yield ""
        yield f"**{COMMANDS_TITLE}**"
        yield ""
        yield from (f"{fence(text)}sh", text, fence(text))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> Iterator[str]:
    """`left`: how many columns are aligned left."""
    yield f"| {' | '.join(heads)} |"
    yield "|" + "".join("---|" if column < left else "---:|" for column in range(len(heads)))
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _cell(figure: Figure) -> str:
    return f"**{figure.mean}**" + (f" ± {figure.std}" if figure.std else "") if figure.best else figure.text


def _change(row: ChangeRow) -> list[str]:
    outcome = f"**{row.outcome}**" if row.is_better or row.is_worse else row.outcome
    return [markdown(row.name), row.base.text, row.other.text, row.change, row.interval, outcome]
