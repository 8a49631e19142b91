"""A comparison as one HTML file: tables, the intervals of the changes, and the distributions of all sides over each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llama_load.comparison.compare import BETTER, NO_TURNS, NOT_PROVEN, NOT_RANKED, TOO_FEW, WORSE, Comparison
from llama_load.comparison.side import Side
from llama_load.foreign_text import printable
from llama_load.languages import ENGLISH
from llama_load.metrics.definitions import EVERY, Latency, of_group
from llama_load.metrics.ecdf import Ecdf, ecdf
from llama_load.metrics.statistics import describe
from llama_load.reports.comparison.comparison_tables import (
    COMMANDS_TITLE,
    change_tables,
    difference_table,
    sentences,
    side_table,
)
from llama_load.reports.html.charts import (
    SERIES,
    Chart,
    ChartPage,
    Figure,
    Key,
    colour,
)
from llama_load.reports.html.charts_latency import ecdf_chart
from llama_load.reports.html.page import rendered
from llama_load.reports.html.plot import Model, range_of, source, span
from llama_load.reports.translations import translator
from llama_load.tables import Table
from llama_load.tables.numbers import change as percent_change
from llama_load.tables.numbers import milliseconds
from llama_load.version import __version__

MOST_CURVES = len(SERIES)
# More sides have no chart of changes each.
MOST_CHANGE_CHARTS = 12
_MARGIN = 0.01  # of the axis of changes, beside the outermost interval


def comparison_page(comparisons: Sequence[tuple[str, Comparison]]) -> str:
    """The page of these comparisons (title and comparison). Distributions are of sides that were read with samples."""
    page = ChartPage()
    parts = [_part(title, comparison, page) for title, comparison in comparisons]
    labels = [side.label for side in comparisons[0][1].sides]
    shown = " and ".join(labels) if len(labels) <= 2 else f"{len(labels)} set-ups"
    title = f"Comparison of {shown}"
    return rendered("comparison.html.j2", page, title=title, version=__version__, commands_title=COMMANDS_TITLE, parts=parts)


def _part(title: str, comparison: Comparison, page: ChartPage) -> dict[str, Any]:
    """One comparison of a page, for its template. `tone` is the colour of its head: valid, failed or neither."""
    word, verdict, tone = _verdict(comparison)
    changes: list[tuple[Table, tuple[int, Chart] | None]] = []
    for index, table in change_tables(comparison):
        chart = _change_chart(comparison, index) if len(changes) < MOST_CHANGE_CHARTS else None
        changes.append((table, None if chart is None else (page.add(chart), chart)))
    charts = [chart for latency in of_group(EVERY) if (chart := _distributions(comparison.sides, latency)) is not None]
    return {
        "title": title,
        "comparison": comparison,
        "word": word,
        "verdict": verdict,
        "tone": tone,
        "sides": side_table(comparison),
        "changes": changes,
        "charts": [(page.add(chart), chart) for chart in charts],
        "differences": difference_table(comparison),
        "lists": [(name, texts) for name, texts in sentences(comparison) if name != "Gates"],
    }


def _verdict(comparison: Comparison) -> tuple[str, list[str], str]:
    """The head of a part: a word, sentences, its colour."""
    outcomes = [change.outcome for change in comparison.changes.values()]
    better, worse = outcomes.count(BETTER), outcomes.count(WORSE)
    judged = better + worse + outcomes.count(NOT_PROVEN)
    if comparison.reasons:
        return "NOT ALL COMPARABLE", [comparison.reasons[0].text], ""
    if not comparison.has_repeats:
        return "NOT PROVEN", ["One run a side: a difference may be chance or drift."], ""
    if not judged:
        why = "The runs did not take turns: a difference may be drift." if NO_TURNS in outcomes else "No figure could be judged."
        return "NOT PROVEN", [why], ""
    if not better and not worse:
        return (
            "NO DIFFERENCE PROVEN",
            [f"None of {judged} differences that were judged is larger than the scatter between runs explains."],
            "",
        )
    counts = [f"{count} {word}" for count, word in ((better, "better"), (worse, "worse")) if count]
    lines = [f"{' and '.join(counts)} of {judged} that were judged."]
    return "DIFFERENT", lines, "valid" if not worse else "failed" if not better else ""


# ---------------------------------------------------------------------- charts


def _change_chart(comparison: Comparison, index: int) -> Chart | None:
    """The change of each metric with its interval; None without intervals. Green is better, red worse."""
    known = [
        (metric, change)
        for metric in comparison.metrics
        if (change := comparison.changes[metric.key, index]).interval is not None and change.ratio is not None
    ]
    if not known:
        return None
    names = [metric.short for metric, _ in known]
    ends = [end - 1 for _, change in known for end in change.interval or ()]
    low, high = min(0.0, *ends), max(0.0, *ends)
    plot = Figure(
        "change",
        "",
        x_range=range_of(max(low, -1.0) - _MARGIN, min(high, 1.0) + _MARGIN),
        y_range=Model("FactorRange", factors=names[::-1]),
        height=70 + 22 * len(names),
        zoom="width",
    )
    plot.x_axis.set(formatter=Model("NumeralTickFormatter", format="+0.[0] %"))
    plot.add(span(0, "height", line_color=colour("axis")))
    for role, outcomes in _ROLES.items():
        rows = [(metric, change) for metric, change in known if change.outcome in outcomes]
        if not rows:
            continue
        data = source(
            name=[metric.short for metric, _ in rows],
            x=[(change.ratio or 1) - 1 for _, change in rows],
            low=[(change.interval or (1, 1))[0] - 1 for _, change in rows],
            high=[(change.interval or (1, 1))[1] - 1 for _, change in rows],
        )
        plot.draw(data, "Segment", x0="low", y0="name", x1="high", y1="name", line_width=2, line_color=colour(role))
        dots = plot.draw(data, "Scatter", x="x", y="name", size=8, fill_color=colour(role), line_color=colour(role))
        plot.hover([dots], [("metric", "@name"), ("change", "@x{+0.0 %}"), ("95 % interval", "@low{+0.0 %} to @high{+0.0 %}")])
    keys = [Key("green", "better"), Key("red", "worse"), Key("grey", "neither is proven")]
    summary = "; ".join(f"{metric.short} {percent_change(change.ratio)}" for metric, change in known)
    return Chart(plot, "Changes with 95 % intervals", summary, keys)


_ROLES = {"green": (BETTER,), "red": (WORSE,), "grey": (NOT_PROVEN, NO_TURNS, NOT_RANKED, TOO_FEW)}


def _distributions(sides: Sequence[Side], latency: Latency) -> Chart | None:
    """The distributions of a latency, a curve per side over all its runs; None where fewer than two sides have values."""
    curves: dict[str, Ecdf] = {}
    pooled: list[NDArray[np.float64]] = []
    for side in sides[:MOST_CURVES]:
        values = [run.samples[latency.key] for run in side.runs if latency.key in run.samples]
        curve = ecdf(lambda values=values: values) if values else None  # type: ignore[misc]
        if curve is not None:
            curves[printable(side.label)] = curve
            pooled += values
    if len(curves) < 2:
        return None
    chart = ecdf_chart(latency, curves, describe(np.concatenate(pooled), (99.0,)), translator(ENGLISH))
    if chart is None:
        return None
    middles = "; ".join(
        f"{side.label}: median {milliseconds(side.mean(f'median_{latency.key}_ms'))}" for side in sides if side.label in curves
    )
    note = f"The first {MOST_CURVES} of {len(sides)} sides." if len(sides) > MOST_CURVES else ""
    return replace(chart, summary=f"{latency.name}: {printable(middles)}", note=note)
