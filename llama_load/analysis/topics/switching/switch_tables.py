"""What switching between models or adapters costs: the table."""

from __future__ import annotations

from collections.abc import Iterator

from llama_load.analysis.topics.switching.switch_figures import (
    BESIDE,
    LEAST,
    SAME,
    SWITCHED,
    SwitchFigures,
)
from llama_load.ground.languages import Translate
from llama_load.tables import Cell, Row, Table, columns, figure
from llama_load.tables.numbers import NONE, percent

_CLASSES = {SAME: "same {}", SWITCHED: "another before", BESIDE: "another beside"}
TITLES = {"model": "Switching between Models", "adapter": "Switching between Adapters"}


def switch_tables(figures: SwitchFigures, t: Translate) -> Iterator[Table]:
    """A row per class of requests, with what it costs against the first."""
    heads = columns(
        "", t("requests"), t("beside"), t("cached"), "TTFT", "TPOT", "+TTFT", "+TPOT"
    )
    rows: list[Row] = []
    for each in figures.classes:
        row: Row = [
            t(_CLASSES[each.name]).format(t(figures.what)),
            str(each.requests),
            figure(each.others_in_flight, 1),
            Cell(percent(each.cached_ratio), each.cached_ratio),
            figure(each.median_ttft_ms),
            figure(each.median_tpot_ms),
            _price(each.ttft_price_ms),
            _price(each.tpot_price_ms),
        ]
        rows.append(row)

    what = figures.what
    notes = [
        f"by the requests on the same server: the last one before had the same {what} "
        "and none beside had another; the last one before had another; "
        "or one in flight at the same time had another",
        "TTFT and TPOT are medians in ms; beside: others in flight at the start, mean",
        "+TTFT, +TPOT: what it costs against the first row, "
        f"between requests of the same {what}, "
        "with as many others in flight at their start, first or later turns alike; "
        f"n/a: fewer than {LEAST} such requests of both (a run of one {what} shows it)",
    ]

    yield Table(t(TITLES[figures.what]), heads, rows, notes)


def _price(value: float | None) -> Cell:
    if value is None:
        return Cell(NONE)
    return Cell(f"{value:+.2f}", value)
