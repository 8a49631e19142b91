"""What a locustfile did besides LLM requests, in the block."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from llama_load.analysis.reports.layout import TEXT_WIDTH
from llama_load.ground.languages import Translate
from llama_load.run_folder.observed.other_requests import OtherTraffic
from llama_load.tables import LEFT, Column, Row, Table, figure, text_lines
from llama_load.tables.text_width import wrapped


def traffic_table(traffic: OtherTraffic, t: Translate) -> Table | None:
    """A row per request of another kind and per exception; None without any."""
    heads = [
        Column("", LEFT),
        Column(t("Requests"), lines=("req",)),
        Column(t("Failed"), lines=("failed",)),
        Column(t("Mean (ms)"), lines=("mean (ms)",)),
        Column(t("Max (ms)"), lines=("max (ms)",)),
        Column(t("First failure"), LEFT, is_long=True),
    ]
    rows: list[Row] = []
    for request in traffic.requests:
        row: Row = [
            _name(request.method, request.name),
            str(request.requests),
            str(request.failures),
            figure(request.mean_ms),
            figure(request.longest_ms),
            request.error or "",
        ]
        rows.append(row)

    for exception in traffic.exceptions:
        count = str(exception.count)
        rows.append([t("exception in a task"), "", count, "", "", exception.text])

    if not rows:
        return None

    return Table(t("Besides LLM requests"), heads, rows)


def traffic_lines(traffic: OtherTraffic) -> Iterable[str]:
    """A table of the requests, the first failure's text of each row, and a line per exception."""
    table = traffic_table(replace(traffic, exceptions=[]), str)
    if table is not None:
        yield from text_lines(table.without(5), gap=" ")

    for row in traffic.requests:
        if row.error is not None:
            yield from _wrapped(f"! {_name(row.method, row.name)}: {row.error}")
    for exception in traffic.exceptions:
        yield from _wrapped(
            f"! {exception.count} x exception in a task: {exception.text}"
        )


def _name(method: str, name: str) -> str:
    return f"{method} {name}".strip()


def _wrapped(text: str) -> list[str]:
    return list(wrapped(text, TEXT_WIDTH, indent="  "))
