"""Rows of one load of which some requests failed: `analysis.comparison.common_requests` for
rows."""

from __future__ import annotations

from collections.abc import Sequence

from llama_load.analysis.comparison.common_requests import (
    failed_alone,
    on_common_requests,
)
from llama_load.analysis.comparison.compared_metrics import metric_of
from llama_load.lab.sweep.rows import Row

NOT_OF_COMMON = "it is not known of the requests that succeeded in all rows alone"


def judge_common(rows: Sequence[Row]) -> None:
    """Change the rows of one load that lost about the same requests.

    Their figures become those of the requests that succeeded in all of them, and they may be
    ranked.
    """
    of_load: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        if row.run is None or row.run.answers is None or row.reason:
            continue
        if row.fact("test") or not failed_alone(row.run):
            continue
        load = (
            row.fact("workload"),
            row.fact("load"),
            row.stage,
            row.repeat,
            row.run.plan,
        )
        of_load.setdefault(load, []).append(row)

    for same_load in of_load.values():
        _judge(same_load)


def _judge(rows: Sequence[Row]) -> None:
    """Restrict rows of one load to the requests that succeeded in all, if these are enough."""
    runs = [row.run for row in rows if row.run is not None]
    found = on_common_requests(runs)
    if found is None:
        return

    note = found.note("rows")
    for row, run in zip(rows, found.runs, strict=True):
        row.run = run
        row.is_ranked = True
        row.are_rates_ranked = found.is_same
        row.common_note = note
        if found.is_same:
            continue

        latencies: dict[str, float | None] = {}
        for key, value in run.values.items():
            metric = metric_of(key)
            if metric is None or metric.latency is None:
                continue
            latencies[key] = value
            if value is None:
                row.reasons.setdefault(key, NOT_OF_COMMON)
        row.figures = {**row.figures, **latencies}
