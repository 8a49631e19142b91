"""What is reported of conversations: figures of whole ones, and a row for each turn."""

from __future__ import annotations

from collections.abc import Iterator

from llama_load.analysis.results import Results
from llama_load.metrics.conversation_figures import ConversationFigures
from llama_load.metrics.summary import Summary
from llama_load.reports.translations import Translate
from llama_load.tables import LEFT, Cell, Column, Row, Table, figure
from llama_load.tables.numbers import NONE

# A stage has a column of its own; with more stages than this there is only one column, of the whole run.
MOST_STAGES = 6

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


def conversation_tables(results: Results, t: Translate) -> Iterator[Table]:
    """The tables that this run has: conversations of several turns, turns."""
    if results.conversations is not None:
        yield _conversations(results, results.conversations, t)
    if len(results.by_turn) > 1:
        yield _turns(results, t)


def _conversations(results: Results, total: ConversationFigures, t: Translate) -> Table:
    shown = {stage.name: stage.conversations for stage in results.stages}
    if not 1 < len(shown) <= MOST_STAGES:
        shown = {t("all"): total}
    names = [t(name) for name in _NAMES]
    names += [t("{p} duration (s)").format(p=p.upper()) for p in total.duration_s]
    names += [t("{p} duration without waits (s)").format(p=p.upper()) for p in total.without_waits_s]
    cells = [[Cell(NONE)] * len(names) if talks is None else _cells(talks) for talks in shown.values()]
    rows: list[Row] = [list(row) for row in zip(names, *cells, strict=True)]
    heads = [Column("", LEFT), *(Column(name, width=9) for name in shown)]
    notes = [t("Waits are included in durations and in those alive; requests and tokens are means of those sent to their end.")]
    if total.ended < total.count:
        notes.append(t("Durations count conversations that were cut off as such (Kaplan-Meier)."))
    return Table(t("Conversations"), heads, rows, notes)


def _cells(talks: ConversationFigures) -> list[Cell]:
    """A column, in the order of `_NAMES` and the percentiles."""
    wholes = (talks.count, talks.ended, talks.failed)
    means = (
        talks.mean_in_flight,
        _percent(talks.waiting_ratio),
        talks.turns,
        talks.prompt_tokens,
        talks.output_tokens,
        _percent(talks.cached_ratio),
        *talks.duration_s.values(),
        *talks.without_waits_s.values(),
    )
    return [*map(_whole, wholes), figure(talks.mean_alive), _whole(talks.peak), *map(figure, means)]


def _whole(value: int) -> Cell:
    return Cell(str(value), value)


def _percent(ratio: float | None) -> float | None:
    return None if ratio is None else 100 * ratio


def _turns(results: Results, t: Translate) -> Table:
    """A row per turn: the growth of the history, and how much of it came from the server's cache; sub-agents below."""
    heads = [
        Column(t("turn")),
        Column(t("requests"), lines=("req",), width=6),
        Column(t("failed"), width=6),
        Column(t("prompt tokens"), lines=("prompt",), width=9),
        Column(t("cached"), width=9),
        Column(t("cached %"), width=8),
        Column("TTFT (ms)", width=9),
    ]
    rows = [_turn(str(turn), part) for turn, part in results.by_turn.items()]
    rows += [_turn(f"{t('sub-agent')} {turn}", part) for turn, part in results.by_agent_turn.items()]
    return Table(t("Turns"), heads, rows, [t("Tokens are means of a request, TTFT is a median.")])


def _turn(name: str, part: Summary) -> Row:
    prompt, cached, requests = part.total_input_tokens, part.total_cached_tokens, part.completed or 1
    means = [figure(None if total is None else total / requests) for total in (prompt, cached)]
    share = figure(100 * cached / prompt if cached is not None and prompt else None)
    return [name, str(part.completed), str(part.failed), *means, share, figure(part.distributions["ttft"].median)]
