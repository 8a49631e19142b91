"""Charts against the load: the median TTFT and the output of each stage, a curve per run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from llama_load.analysis.figures.level import Level
from llama_load.analysis.reports.html.charts import (
    Chart,
    Figure,
    Key,
    colour,
    series_colours,
)
from llama_load.analysis.reports.html.plot import Model, source
from llama_load.ground.languages import Translate
from llama_load.tables.numbers import brief

HEIGHT = 220
# Loads have numbers at the axis where they are at least this part of it apart.
APART = 0.04


@dataclass(frozen=True, slots=True)
class _Point:
    """A load, the figure there, and whether no failed check spoils it."""

    load: float
    value: float
    is_sure: bool


def level_charts(curves: Mapping[str, Sequence[Level]], t: Translate) -> list[Chart]:
    """TTFT and output tokens/s against the load.

    `curves`: the levels of each run by its name. No charts without a curve of two loads, or where
    one run has users and another a rate.
    """
    kinds = set()
    for levels in curves.values():
        for level in levels:
            kinds.add(level.is_rate)
    if len(kinds) != 1:
        return []

    x_label = t("requests/s") if kinds == {True} else t("users")
    ttft = {name: _ttft_points(levels) for name, levels in curves.items()}
    output = {name: _output_points(levels) for name, levels in curves.items()}

    charts = []
    for name, unit, points in (
        (f"TTFT {t('median')}", "ms", ttft),
        (t("Output"), t("tokens/s"), output),
    ):
        chart = _chart(name, unit, x_label, points, t)
        if chart is not None:
            charts.append(chart)

    return charts


def _ttft_points(levels: Sequence[Level]) -> list[_Point]:
    points = []
    for level in levels:
        if level.ttft_ms is not None:
            points.append(_Point(level.load, level.ttft_ms, level.is_ttft_sure))
    return points


def _output_points(levels: Sequence[Level]) -> list[_Point]:
    points = []
    for level in levels:
        if level.tok_per_s is not None:
            points.append(_Point(level.load, level.tok_per_s, level.is_rate_sure))
    return points


def _chart(
    name: str,
    unit: str,
    x_label: str,
    curves: Mapping[str, Sequence[_Point]],
    t: Translate,
) -> Chart | None:
    known = {run: points for run, points in curves.items() if points}
    loads = set()
    for points in known.values():
        for point in points:
            loads.add(point.load)
    if len(loads) < 2:
        return None

    plot = Figure(x_label, f"{name} ({unit})", zoom="both", height=HEIGHT)
    plot.x_range.set(start=0, range_padding=0.08)
    plot.x_axis.set(ticker=Model("FixedTicker", ticks=_ticks(loads)))

    keys = []
    texts = []
    is_doubtful = False
    for role, (run, points) in zip(
        series_colours(len(known)), known.items(), strict=True
    ):
        _draw_curve(plot, points, role, run, (name, unit, x_label))
        if len(known) > 1:
            keys.append(Key(role, run))

        values = ", ".join(f"{point.load:g}: {brief(point.value)}" for point in points)
        texts.append(f"{run} {values}".strip())
        is_doubtful = is_doubtful or not all(point.is_sure for point in points)

    note = t("Hollow: a check spoils this figure.") if is_doubtful else ""
    title = t("{figure} against the load").format(figure=name)
    return Chart(plot, title, f"{title} ({unit}): {'; '.join(texts)}", keys, note)


def _ticks(loads: Iterable[float]) -> list[float]:
    """The loads that have a number at the axis, from the largest on: of two that are close to each
    other the smaller has none."""
    ticks: list[float] = []
    for load in sorted(loads, reverse=True):
        if not ticks or ticks[-1] - load >= APART * ticks[0]:
            ticks.append(load)
    return ticks[::-1]


def _draw_curve(
    plot: Figure, points: Sequence[_Point], role: str, run: str, names: Sequence[str]
) -> None:
    """A line through the points; a dot at each, which is hollow where its figure is not sure.

    `names`: of the figure, its unit and the load.
    """
    in_order = sorted(points, key=lambda point: point.load)
    plot.draw(
        _source_of(in_order, run),
        "Line",
        x="x",
        y="y",
        line_color=colour(role),
        line_width=2,
    )
    dots = []
    for is_sure, fill in ((True, colour(role)), (False, None)):
        shown = [point for point in in_order if point.is_sure == is_sure]
        if shown:
            drawn = plot.draw(
                _source_of(shown, run),
                "Scatter",
                x="x",
                y="y",
                size=9,
                fill_color=fill,
                line_color=colour(role),
                line_width=2,
            )
            dots.append(drawn)

    figure, unit, load = names
    lines = [(load, "@x"), (figure, f"@y{{0,0.0}} {unit}")]
    if run:
        lines.insert(0, ("", "@run"))
    plot.hover(dots, lines)


def _source_of(points: Sequence[_Point], run: str) -> Model:
    return source(
        x=[point.load for point in points],
        y=[point.value for point in points],
        run=[run] * len(points),
    )
