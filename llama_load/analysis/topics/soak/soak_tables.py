"""The drift of a long run: its table, and its part of summary.json."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from llama_load.analysis.topics.soak.drift import Drift
from llama_load.analysis.topics.soak.soak_figures import SoakFigures
from llama_load.ground.languages import Translate
from llama_load.ground.units import ns_to_s
from llama_load.tables import Table, columns
from llama_load.tables.numbers import fixed, percent


def soak_tables(figures: SoakFigures, t: Translate) -> Iterator[Table]:
    """A row per figure of a long run: change per hour with its interval.

    Then when failures came together.
    """
    soak = figures.soak
    hours = f"{soak.hours:.1f}"
    title = t("Drift over {hours} Hours").format(hours=hours)
    heads = columns("", t("median"), t("per hour"), t("95 % interval"), "")
    rows = [_drift_row(drift) for drift in soak.drifts]
    notes = [t("* the interval leaves out zero: it drifts"), failure_text(figures)]
    yield Table(title, heads, rows, notes)


def _drift_row(drift: Drift) -> tuple[str, str, str, str, str]:
    low = _of_level(drift.low, drift)
    high = _of_level(drift.high, drift)
    return (
        f"{drift.name} ({drift.unit})",
        fixed(drift.level),
        percent(drift.share, 2, sign="+"),
        f"{low} to {high}",
        "*" if drift.is_certain else "",
    )


def _of_level(limit: float, drift: Drift) -> str:
    """A limit of the interval as a share of the median."""
    share = limit / drift.level if drift.level else 0.0
    return percent(share, 2, sign="+")


def failure_text(figures: SoakFigures) -> str:
    """When failures came together."""
    burst = figures.soak.failures
    failed = figures.failed
    if burst is None and not failed:
        return "failures: none"
    if burst is None:
        return f"failures: {failed}; no part of the time was found to have more of them"

    begin_h = ns_to_s(burst.begin_ns - figures.origin_ns) / 3600
    end_h = ns_to_s(burst.end_ns - figures.origin_ns) / 3600
    when = f"from {begin_h:.2f} h to {end_h:.2f} h"

    return f"failures: {burst.inside:.1%} {when}, otherwise {burst.outside:.2%}"


def soak_plain(figures: SoakFigures) -> dict[str, Any]:
    """The drifts, per hour in their units."""
    soak = figures.soak
    drifts = []
    for drift in soak.drifts:
        derived = {"share": drift.share, "is_certain": drift.is_certain}
        drifts.append(asdict(drift) | derived)

    return {"hours": soak.hours, "drifts": drifts, "failures": soak.failures}
