"""Whether conversations stay with their replica: the tables."""

from __future__ import annotations

from collections.abc import Iterator

from llama_load.analysis.topics.affinity.affinity_figures import (
    AffinityFigures,
    LaterTurns,
)
from llama_load.ground.languages import Translate
from llama_load.tables import Cell, Row, Table, columns, figure
from llama_load.tables.numbers import percent

HIT = "a hit is a later turn at the replica of the turn before"


def affinity_tables(figures: AffinityFigures, t: Translate) -> Iterator[Table]:
    """The hits of each replica, and later turns that hit beside those that missed."""
    rows: list[Row] = []
    for each in figures.replicas:
        share = each.hits / each.later_turns if each.later_turns else None
        row: Row = [
            each.replica,
            str(each.requests),
            str(each.later_turns),
            str(each.hits),
            percent(share),
        ]
        rows.append(row)

    notes = [t(HIT)]
    left_out = figures.replica_count - len(figures.replicas)
    if left_out > 0:
        notes.append(f"{left_out} further replicas are left out")

    heads = columns(
        t("replica"), t("requests"), t("later turns"), t("hits"), t("hit share")
    )
    yield Table(t("Session Affinity"), heads, rows, notes)

    turns = [_turns_row(t("hit"), figures.hit), _turns_row(t("miss"), figures.miss)]
    heads = columns("", t("turns"), "TTFT (ms)", t("cached"))
    yield Table(t("Later Turns by Replica"), heads, turns)


def _turns_row(name: str, turns: LaterTurns) -> Row:
    return [
        name,
        str(turns.turns),
        figure(turns.median_ttft_ms),
        Cell(percent(turns.cached_ratio), turns.cached_ratio),
    ]
