"""A comparison as one HTML file.

Tables, the intervals of the changes, and the distributions of all sides over each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.comparison.compare import (
    BETTER,
    NO_TURNS,
    NOT_PROVEN,
    NOT_RANKED,
    TOO_FEW,
    WORSE,
    Comparison,
)
from llama_load.analysis.comparison.reasons import RATES, Reason
from llama_load.analysis.comparison.side import Side
from llama_load.analysis.figures.level import Level
from llama_load.analysis.reports.comparison.comparison_tables import (
    COMMANDS_TITLE,
    change_tables,
    difference_table,
    sentences,
    side_table,
)
from llama_load.analysis.reports.html.charts import (
    SERIES,
    Chart,
    ChartPage,
    Figure,
    Key,
    colour,
)
from llama_load.analysis.reports.html.charts_latency import ecdf_chart
from llama_load.analysis.reports.html.charts_levels import level_charts
from llama_load.analysis.reports.html.page import rendered
from llama_load.analysis.reports.html.plot import Model, range_of, source, span
from llama_load.analysis.reports.translations import translator
from llama_load.analysis.statistics.ecdf import Ecdf, ecdf
from llama_load.analysis.statistics.statistics import describe
from llama_load.ground.languages import ENGLISH
from llama_load.ground.units import quantity
from llama_load.ground.version import __version__
from llama_load.outside.foreign_text import printable
from llama_load.run_folder.vocabulary.definitions import EVERY, Latency, of_group
from llama_load.tables import Table
from llama_load.tables.numbers import change as percent_change
from llama_load.tables.numbers import milliseconds

MOST_CURVES = len(SERIES)
# More sides have no chart of changes each.
MOST_CHANGE_CHARTS = 12
# Colours of the points of a chart of changes, by their outcomes.
_ROLES = {
    "green": (BETTER,),
    "red": (WORSE,),
    "grey": (NOT_PROVEN, NO_TURNS, NOT_RANKED, TOO_FEW),
}
_MARGIN = 0.01  # of the axis of changes, beside the outermost interval


def comparison_page(comparisons: Sequence[tuple[str, Comparison]]) -> str:
    """The page of these comparisons (title and comparison).

    Distributions are of sides that were read with samples.
    """
    page = ChartPage()
    levels = []
    for chart in level_charts(_levels_of_sides(comparisons), str):
        levels.append((page.add(chart), chart))

    parts = [
        _comparison_part(title, comparison, page) for title, comparison in comparisons
    ]
    labels = [side.label for side in comparisons[0][1].sides]
    shown = " and ".join(labels) if len(labels) <= 2 else f"{len(labels)} set-ups"

    return rendered(
        "comparison.html.j2",
        page,
        title=f"Comparison of {shown}",
        version=__version__,
        commands_title=COMMANDS_TITLE,
        levels=levels,
        parts=parts,
    )


def _comparison_part(
    title: str, comparison: Comparison, page: ChartPage
) -> dict[str, Any]:
    """One comparison of a page, for its template.

    `tone` is the colour of its head: valid, failed or neither.
    """
    word, verdict, tone = _verdict_of_part(comparison)
    changes: list[tuple[Table, tuple[int, Chart] | None]] = []
    for index, table in change_tables(comparison):
        chart = None
        if len(changes) < MOST_CHANGE_CHARTS:
            chart = _change_chart(comparison, index)

        numbered = None if chart is None else (page.add(chart), chart)
        changes.append((table, numbered))

    charts = []
    for latency in of_group(EVERY):
        chart = _distributions(comparison.sides, latency)
        if chart is not None:
            charts.append((page.add(chart), chart))

    return {
        "title": title,
        "comparison": comparison,
        "word": word,
        "verdict": verdict,
        "tone": tone,
        "sides": side_table(comparison),
        "changes": changes,
        "charts": charts,
        "differences": difference_table(comparison),
        "lists": [
            (name, texts) for name, texts in sentences(comparison) if name != "Gates"
        ],
    }


def _verdict_of_part(comparison: Comparison) -> tuple[str, list[str], str]:
    """The head of a part: a word, sentences, its colour."""
    outcomes = [change.outcome for change in comparison.changes.values()]
    better = outcomes.count(BETTER)
    worse = outcomes.count(WORSE)
    judged = better + worse + outcomes.count(NOT_PROVEN)
    found = _judged_sentence(better, worse, judged)
    if comparison.reasons:
        lines = [_main_reason(comparison.reasons)]
        if comparison.has_repeats and judged:
            lines.append(found)
        return "NOT ALL COMPARABLE", lines, ""
    if not comparison.has_repeats:
        return (
            "NOT PROVEN",
            ["One run a side: a difference may be chance or drift."],
            "",
        )
    if not judged and NO_TURNS in outcomes:
        why = "The runs did not take turns: a difference may be drift."
        return "NOT PROVEN", [why], ""
    if not judged:
        return "NOT PROVEN", ["No figure could be judged."], ""
    if not better and not worse:
        return "NO DIFFERENCE PROVEN", [found], ""

    tone = ""
    if not worse:
        tone = "valid"
    elif not better:
        tone = "failed"

    return "DIFFERENT", [found], tone


def _judged_sentence(better: int, worse: int, judged: int) -> str:
    """What the figures that were judged show."""
    if not better and not worse:
        return (
            f"None of {judged} differences that were judged is larger than "
            "the scatter between runs explains."
        )

    counts = []
    if better:
        counts.append(f"{better} better")
    if worse:
        counts.append(f"{worse} worse")
    return f"{' and '.join(counts)} of {judged} that were judged."


def _main_reason(reasons: Sequence[Reason]) -> str:
    """The reason that keeps the most figures from being ranked, and how many others there are.

    One against all figures is before one against the rates, and that before one against a latency.
    """
    text = min(reasons, key=_rank_of).text
    others = len(reasons) - 1
    if not others:
        return text
    return f"{text} (and {quantity(others, 'other reason')}, below)"


def _rank_of(reason: Reason) -> int:
    if not reason.latency:
        return 0
    if reason.latency == RATES:
        return 1
    return 3 if reason.latency == "itl" else 2


@dataclass(frozen=True, slots=True)
class _Point:
    """A change in a chart: its metric, the ratio to the base, and the interval of the ratio."""

    name: str
    ratio: float
    low: float
    high: float
    outcome: str


# ---------------------------------------------------------------------- charts


def _change_chart(comparison: Comparison, index: int) -> Chart | None:
    """The change of each metric with its interval; None without intervals.

    Green is better, red worse.
    """
    points = list(_points(comparison, index))
    if not points:
        return None

    names = []
    texts = []
    low = 0.0
    high = 0.0
    for point in points:
        names.append(point.name)
        texts.append(f"{point.name} {percent_change(point.ratio)}")
        low = min(low, point.low - 1)
        high = max(high, point.high - 1)

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
        of_role = [point for point in points if point.outcome in outcomes]
        if of_role:
            _draw_points(plot, of_role, colour(role))

    keys = [
        Key("green", "better"),
        Key("red", "worse"),
        Key("grey", "neither is proven"),
    ]
    return Chart(plot, "Changes with 95 % intervals", "; ".join(texts), keys)


def _points(comparison: Comparison, index: int) -> Iterator[_Point]:
    """The changes of a side that have an interval."""
    for metric in comparison.metrics:
        change = comparison.changes[metric.key, index]
        if change.interval is None or change.ratio is None:
            continue

        low, high = change.interval
        yield _Point(metric.short, change.ratio, low, high, change.outcome)


def _draw_points(plot: Figure, points: Sequence[_Point], line_color: str) -> None:
    data = source(
        name=[point.name for point in points],
        x=[point.ratio - 1 for point in points],
        low=[point.low - 1 for point in points],
        high=[point.high - 1 for point in points],
    )

    plot.draw(
        data,
        "Segment",
        x0="low",
        y0="name",
        x1="high",
        y1="name",
        line_width=2,
        line_color=line_color,
    )
    dots = plot.draw(
        data,
        "Scatter",
        x="x",
        y="name",
        size=8,
        fill_color=line_color,
        line_color=line_color,
    )
    lines = [
        ("metric", "@name"),
        ("change", "@x{+0.0 %}"),
        ("95 % interval", "@low{+0.0 %} to @high{+0.0 %}"),
    ]
    plot.hover([dots], lines)


def _levels_of_sides(
    comparisons: Sequence[tuple[str, Comparison]],
) -> dict[str, Sequence[Level]]:
    """The stages of each side's first run, by the side's label.

    Each stage is a comparison of its own.
    """
    curves: dict[str, dict[float, Level]] = {}
    for _, comparison in comparisons:
        for side in comparison.sides[:MOST_CURVES]:
            curve = curves.setdefault(printable(side.label), {})
            for level in side.runs[0].levels:
                curve.setdefault(level.load, level)

    return {label: list(curve.values()) for label, curve in curves.items()}


def _distributions(sides: Sequence[Side], latency: Latency) -> Chart | None:
    """The distributions of a latency, a curve per side over all its runs.

    None where fewer than two sides have values.
    """
    curves: dict[str, Ecdf] = {}
    pooled: list[NDArray[np.float64]] = []
    for side in sides[:MOST_CURVES]:
        values = []
        for run in side.runs:
            if latency.key in run.samples:
                values.append(run.samples[latency.key])
        if not values:
            continue

        curve = ecdf(lambda values=values: values)  # type: ignore[misc]
        if curve is not None:
            curves[printable(side.label)] = curve
            pooled += values

    if len(curves) < 2:
        return None

    whole = describe(np.concatenate(pooled), (99.0,))
    chart = ecdf_chart(latency, curves, whole, translator(ENGLISH))
    if chart is None:
        return None

    middles = []
    for side in sides:
        if side.label in curves:
            median = milliseconds(side.mean(f"median_{latency.key}_ms"))
            middles.append(f"{side.label}: median {median}")

    summary = f"{latency.name}: {printable('; '.join(middles))}"
    note = ""
    if len(sides) > MOST_CURVES:
        note = f"The first {MOST_CURVES} of {len(sides)} sides."

    return replace(chart, summary=summary, note=note)
