"""Several models, adapters or replicas: what switching costs, and whether conversations stay with their replica."""

from __future__ import annotations

from collections.abc import Iterator

from llama_load.analysis.results import Results
from llama_load.metrics.affinity_figures import AffinityFigures, LaterTurns
from llama_load.metrics.switch_figures import BESIDE, LEAST, SAME, SWITCHED, SwitchFigures
from llama_load.tables import Cell, Row, Table, columns, figure
from llama_load.tables.numbers import NONE, percent

_CLASSES = {SAME: "same {}", SWITCHED: "another before", BESIDE: "another beside"}


def choice_tables(results: Results) -> Iterator[Table]:
    """A table for each that the run has."""
    if results.switching is not None:
        yield _switching(results.switching)
    if results.affinity is not None:
        yield from _affinity(results.affinity)


def _switching(figures: SwitchFigures) -> Table:
    heads = columns("", "requests", "beside", "cached", "TTFT", "TPOT", "+TTFT", "+TPOT")
    rows: list[Row] = [
        [
            _CLASSES[each.name].format(figures.what),
            str(each.requests),
            figure(each.others_in_flight, 1),
            Cell(percent(each.cached_ratio), each.cached_ratio),
            figure(each.median_ttft_ms),
            figure(each.median_tpot_ms),
            _price(each.ttft_price_ms),
            _price(each.tpot_price_ms),
        ]
        for each in figures.classes
    ]
    what = figures.what
    notes = [
        f"by the requests on the same server: the last one before had the same {what} and none beside had another; the last one "
        f"before had another; or one in flight at the same time had another",
        "TTFT and TPOT are medians in ms; beside: others in flight at the start, mean",
        f"+TTFT, +TPOT: what it costs against the first row, between requests of the same {what}, with as many others in flight "
        f"at their start, first or later turns alike; n/a: fewer than {LEAST} such requests of both (a run of one {what} shows it)",
    ]
    return Table(f"Switching between {what.capitalize()}s", heads, rows, notes)


def _price(value: float | None) -> Cell:
    return Cell(NONE if value is None else f"{value:+.2f}", value)


def _affinity(figures: AffinityFigures) -> Iterator[Table]:
    rows: list[Row] = [
        [
            each.replica,
            str(each.requests),
            str(each.later_turns),
            str(each.hits),
            percent(each.hits / each.later_turns if each.later_turns else None),
        ]
        for each in figures.replicas
    ]
    notes = ["a hit is a later turn at the replica of the turn before"]
    if figures.replica_count > len(figures.replicas):
        notes.append(f"{figures.replica_count - len(figures.replicas)} further replicas are left out")
    yield Table("Session Affinity", columns("replica", "requests", "later turns", "hits", "hit share"), rows, notes)
    heads = columns("", "turns", "TTFT (ms)", "cached")
    yield Table("Later Turns by Replica", heads, [_turns("hit", figures.hit), _turns("miss", figures.miss)])


def _turns(name: str, turns: LaterTurns) -> Row:
    return [name, str(turns.turns), figure(turns.median_ttft_ms), Cell(percent(turns.cached_ratio), turns.cached_ratio)]
