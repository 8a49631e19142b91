"""Why prompts were processed again: the table."""

from __future__ import annotations

from collections.abc import Iterator

from llama_load.analysis.topics.reprocessing.causes import (
    BLOCKS,
    EVICTED,
    ROUNDED,
    SHIFT,
    UNKNOWN,
    WINDOW,
)
from llama_load.analysis.topics.reprocessing.reprocessing_figures import (
    ReprocessingFigures,
)
from llama_load.ground.languages import Translate
from llama_load.ground.units import quantity
from llama_load.outside.foreign_text import printable
from llama_load.tables import LEFT, Column, Row, Table, figure, whole
from llama_load.tables.numbers import percent

COULD = (
    "Cacheable is the prompt of the conversation's turn before, else the longest beginning that "
    "the server had before; ms at the request's prefill time per token."
)
# Of all prefill; below that the first screen says nothing.
MOST_RATIO = 0.1
_CLAUSES = {
    WINDOW: "of its sliding window or recurrent memory",
    SHIFT: "of context shifts",
    EVICTED: "prompts were evicted from --cache-ram",
    BLOCKS: "prompts were evicted from the KV cache's blocks",
    ROUNDED: "only whole blocks are cached",
    UNKNOWN: "of an unknown cause",
}


def reprocessing_tables(figures: ReprocessingFigures, t: Translate) -> Iterator[Table]:
    """A row per cause; nothing where no prompt was processed again."""
    if not figures.causes:
        return
    heads = [
        Column(t("cause"), LEFT),
        Column(t("requests")),
        Column("tokens"),
        Column("ms"),
        Column(t("of prefill")),
        Column(t("first seen"), LEFT, drop=1),
    ]
    rows: list[Row] = []
    notes = [t(COULD)]
    for cause in figures.causes:
        row: Row = [
            t(cause.cause),
            str(cause.turns),
            whole(cause.tokens),
            figure(cause.ms),
            percent(cause.ratio),
            printable(cause.example, 60),
        ]
        rows.append(row)
        notes.append(f"{t(cause.cause)}: {cause.remedy}")
    yield Table(t("Prompts Processed Again"), heads, rows, notes)


def reprocessing_headline(figures: ReprocessingFigures) -> str | None:
    """The sentence of the first screen, where a tenth of all prefill could have been avoided."""
    if figures.ratio is None or figures.ratio <= MOST_RATIO or not figures.causes:
        return None
    first = figures.causes[0]
    return (
        f"{percent(figures.ratio)} of prefill was avoidable: "
        f"{quantity(figures.lost_tokens, 'prompt token')} processed again, mostly because "
        f"{_CLAUSES.get(first.cause, first.cause)} ({quantity(first.turns, 'request')}); "
        f"{first.remedy}"
    )
