"""What is reported of conversations: figures of whole ones, and a row for each turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from llama_load.analysis.figures.conversation_figures import (
    ConversationFigures,
    conversation_figures,
)
from llama_load.analysis.figures.summary import Summary
from llama_load.analysis.topics.topic import TopicInput
from llama_load.ground.languages import Translate
from llama_load.tables import LEFT, Cell, Column, Row, Table, figure, whole
from llama_load.tables.numbers import NONE

# A stage has a column of its own; with more stages than this there is only one, of the whole run.
MOST_STAGES = 6

WAITS = (
    "Waits are included in durations and in those alive; "
    "requests and tokens are means of those sent to their end."
)
TOKENS = "Tokens are means of a request, TTFT is a median."
CUT_OFF = "Durations count conversations that were cut off as such (Kaplan-Meier)."
_NAMES = (
    "Conversations",
    "Sent to their end",
    "With a failed request",
    "Mean alive",
    "Peak alive",
    "Mean requests in flight",
    "Time without a request in flight (%)",
    "Requests per conversation",
    "Prompt tokens per conversation",
    "Output tokens per conversation",
    "Prompt tokens from the cache (%)",
)


@dataclass(frozen=True, slots=True)
class Conversations:
    """The conversations of a run, and the figures of each turn.

    `total`: None without conversations of several turns; `by_stage`: None for a stage without any.
    """

    total: ConversationFigures | None
    by_stage: Mapping[str, ConversationFigures | None]
    by_turn: Mapping[int, Summary]
    by_agent_turn: Mapping[int, Summary]


def conversations(given: TopicInput) -> Conversations | None:
    """The figures of a run; None without conversations."""
    total = conversation_figures(given.measured, given.cut_ns)
    if total is None and len(given.by_turn) < 2:
        return None

    by_stage = {stage.name: stage.conversations for stage in given.stages}

    return Conversations(total, by_stage, given.by_turn, given.by_agent_turn)


def conversation_plain(found: Conversations) -> ConversationFigures | None:
    """The figures of whole conversations; those of turns are in `by_turn`."""
    return found.total


def conversation_tables(found: Conversations, t: Translate) -> Iterator[Table]:
    """The tables that this run has: conversations of several turns, turns."""
    if found.total is not None:
        yield _conversations_table(found.total, found.by_stage, t)
    if len(found.by_turn) > 1:
        yield _turns(found, t)


def _conversations_table(
    total: ConversationFigures,
    by_stage: Mapping[str, ConversationFigures | None],
    t: Translate,
) -> Table:
    shown = by_stage if 1 < len(by_stage) <= MOST_STAGES else {t("all"): total}

    names = [t(name) for name in _NAMES]
    for percentile in total.duration_s:
        names.append(t("{p} duration (s)").format(p=percentile.upper()))
    for percentile in total.without_waits_s:
        names.append(t("{p} duration without waits (s)").format(p=percentile.upper()))

    heads = [Column("", LEFT)]
    figures_of_columns = []
    for stage, talks in shown.items():
        heads.append(Column(stage, width=9))
        if talks is None:
            figures_of_columns.append([Cell(NONE)] * len(names))
        else:
            figures_of_columns.append(_column(talks))

    rows: list[Row] = list(zip(names, *figures_of_columns, strict=True))

    notes = [t(WAITS)]
    if total.ended < total.count:
        notes.append(t(CUT_OFF))

    return Table(t("Conversations"), heads, rows, notes)


def _column(talks: ConversationFigures) -> list[Cell]:
    """The cells below each other, in the order of `_NAMES` and the percentiles."""
    cells = [
        whole(talks.count),
        whole(talks.ended),
        whole(talks.failed),
        figure(talks.mean_alive),
        whole(talks.peak),
        figure(talks.mean_in_flight),
        figure(_percent_or_none(talks.waiting_ratio)),
        figure(talks.turns),
        figure(talks.prompt_tokens),
        figure(talks.output_tokens),
        figure(_percent_or_none(talks.cached_ratio)),
    ]
    cells += map(figure, talks.duration_s.values())
    cells += map(figure, talks.without_waits_s.values())

    return cells


def _percent_or_none(ratio: float | None) -> float | None:
    if ratio is None:
        return None
    return 100 * ratio


def _turns(found: Conversations, t: Translate) -> Table:
    """A row per turn, those of sub-agents below.

    They show how the history grows, and how much of it came from the server's cache.
    """
    heads = [
        Column(t("turn")),
        Column(t("requests"), lines=("req",), width=6),
        Column(t("failed"), width=6),
        Column(t("prompt tokens"), lines=("prompt",), width=9),
        Column(t("cached"), width=9),
        Column(t("cached %"), width=8),
        Column("TTFT (ms)", width=9),
    ]
    rows = []
    for turn, part in found.by_turn.items():
        rows.append(_turn_row(str(turn), part))
    for turn, part in found.by_agent_turn.items():
        rows.append(_turn_row(f"{t('sub-agent')} {turn}", part))

    return Table(t("Turns"), heads, rows, [t(TOKENS)])


def _turn_row(name: str, part: Summary) -> Row:
    prompt = part.total_input_tokens
    cached = part.total_cached_tokens
    requests = part.completed or 1
    share = None
    if prompt and cached is not None:
        share = 100 * cached / prompt

    return [
        name,
        str(part.completed),
        str(part.failed),
        figure(_tokens_a_request(prompt, requests)),
        figure(_tokens_a_request(cached, requests)),
        figure(share),
        figure(part.distributions["ttft"].median),
    ]


def _tokens_a_request(total: int | None, requests: int) -> float | None:
    if total is None:
        return None
    return total / requests
