"""Users who hung up: what they cost, and how soon their slots were free."""

from __future__ import annotations

from collections.abc import Iterator

from llama_load.analysis.topics.hang_ups.hang_up_figures import (
    NEAR_MS,
    HangUpFigures,
    HangUps,
)
from llama_load.ground.languages import Translate
from llama_load.ground.units import quantity
from llama_load.run_folder.observed.hang_up_check import FreeingTimes, HangUpCheck
from llama_load.tables import Cell, Row, Table, columns, figure, whole


def hang_up_tables(hang_ups: HangUps, t: Translate) -> Iterator[Table]:
    """The requests given up, the gaps of the others, and the servers' slots."""
    figures = hang_ups.figures
    checks = hang_ups.checks
    soon_s = f"{NEAR_MS / 1e3:g}"
    rows: list[Row] = [
        [t("requests given up"), str(figures.aborted)],
        [t("before their first token"), str(figures.before_first_token)],
        [t("wasted tokens"), str(figures.wasted_tokens)],
        [t("median TTFT of these (ms)"), figure(figures.median_ttft_ms)],
        [t("median time until given up (ms)"), figure(figures.median_waited_ms)],
        [
            t("others' median gap, {s} s after (ms)").format(s=soon_s),
            figure(figures.near_median_ms),
        ],
        [t("others' median gap, else (ms)"), figure(figures.other_median_ms)],
        [
            t("others' longest gap, {s} s after (ms)").format(s=soon_s),
            figure(figures.near_longest_ms),
        ],
        [t("others' longest gap, else (ms)"), figure(figures.other_longest_ms)],
    ]
    notes: list[str] = []
    for check in checks:
        server = f", {check.host}" if len(checks) > 1 else ""
        for name, value in _of_server(check):
            rows.append([t(name) + server, value])

        if check.freeing is not None and check.freeing.looks:
            notes.append(_how_asked(check.freeing, server))

    yield Table(t("Users Who Hung Up"), columns("", t("value")), rows, notes)


def hang_up_plain(hang_ups: HangUps) -> HangUpFigures:
    """The figures of the requests; what the servers did is in `hang_up_checks`."""
    return hang_ups.figures


def _how_asked(freeing: FreeingTimes, server: str) -> str:
    """How exactly it is known when slots were free."""
    times = quantity(freeing.looks, "time")
    text = f"the server was asked {times}, {freeing.look_ms or 0:.1f} ms each{server}"
    if freeing.resolution_ms is not None:
        earlier = f"{freeing.resolution_ms:.0f} ms (median)"
        text += f"; slots may have been free up to {earlier} earlier"
    return text


def _of_server(check: HangUpCheck) -> Iterator[tuple[str, Cell]]:
    """How soon a server stopped working for users who had gone."""
    freeing = check.freeing
    if freeing is not None:
        yield "slot free after, median (ms)", figure(freeing.median_ms)
        yield "slot free after, P99 (ms)", figure(freeing.p99_ms)
        yield "slot free after, longest (ms)", figure(freeing.longest_ms)
        yield "not known when free", whole(freeing.unknown)
        yield "never freed", whole(freeing.stuck)
        yield "most at work for users who had gone", whole(freeing.most_at_work)

    yield "idle after the last request (ms)", figure(check.idle_after_ms)
