"""The chart of stages: throughput of all users against the speed that one user sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llama_load.analysis.figures.knee import has_power, knee
from llama_load.analysis.figures.stage_figures import StageFigures
from llama_load.analysis.reports.html.charts import FONT, Chart, Figure, Key, colour
from llama_load.analysis.reports.html.plot import Model, annotation, source
from llama_load.analysis.reports.stage_table import stage_name
from llama_load.ground.languages import Translate
from llama_load.outside.foreign_text import printable
from llama_load.tables.numbers import brief

ROOM_FOR_NAME = 1.25


@dataclass(frozen=True, slots=True)
class _Point:
    """A stage in the chart; both figures in tokens/s."""

    stage: StageFigures
    one_user: float
    all_users: float

    @property
    def name(self) -> str:
        return printable(stage_name(self.stage))


def stage_chart(stages: Sequence[StageFigures], t: Translate) -> Chart | None:
    """A dot per stage, joined in their order, the knee marked (see `analysis.figures.knee`).

    None with fewer than two known stages.
    """
    points = _points(stages)
    if len(points) < 2:
        return None

    plot = Figure(
        t("output tokens/s, one user"),
        t("output tokens/s, all users"),
        zoom="both",
        height=320,
    )
    # At the right there is room for the name of the last point.
    fastest = max(point.one_user for point in points)
    plot.x_range.set(start=0, end=ROOM_FOR_NAME * fastest)
    plot.y_range.set(range_padding=0.15)
    data = _source_of(points)
    plot.draw(data, "Line", x="x", y="y", line_color=colour("axis"), line_width=2)

    keys = []
    comparable = []
    others = []
    for point in points:
        if has_power(point.stage):
            comparable.append(point)
        else:
            others.append(point)
    if comparable:
        _draw_dots(plot, comparable, "blue", t)
        keys.append(Key("blue", t("comparable")))
    if others:
        _draw_dots(plot, others, "grey", t)
        keys.append(Key("grey", t("not comparable")))

    summary = t(
        "Output tokens/s of all users against those of one user, at {count} loads."
    )
    summary = summary.format(count=len(points))
    best = knee(stages)
    for point in points:
        if point.stage is best:
            _mark_knee(plot, point)
            keys.append(
                Key("orange", t("knee: the most of both together (their product)"))
            )
            summary += f" {_knee_text(point, t)}"

    label = {"text_font": FONT, "text_font_size": "12px", "text_color": colour("label")}
    names = annotation(
        data, "LabelSet", x="x", y="y", text="name", x_offset=10, y_offset=4, **label
    )
    plot.add(names)

    return Chart(plot, t("Throughput against the speed of one user"), summary, keys)


def _points(stages: Sequence[StageFigures]) -> list[_Point]:
    """The stages of which both figures are known."""
    points = []
    for stage in stages:
        one_user = stage.figures.tok_per_s_per_user
        all_users = stage.figures.output_throughput
        if one_user and all_users:
            points.append(_Point(stage, one_user, all_users))

    return points


def _source_of(points: Sequence[_Point]) -> Model:
    return source(
        x=[point.one_user for point in points],
        y=[point.all_users for point in points],
        name=[point.name for point in points],
    )


def _draw_dots(plot: Figure, points: Sequence[_Point], role: str, t: Translate) -> None:
    dots = plot.draw(
        _source_of(points),
        "Scatter",
        x="x",
        y="y",
        size=9,
        fill_color=colour(role),
        line_color=colour(role),
    )

    lines = [
        (t("stage"), "@name"),
        (t("output tokens/s, one user"), "@x{0,0.0}"),
        (t("output tokens/s, all users"), "@y{0,0.0}"),
    ]
    plot.hover([dots], lines)


def _mark_knee(plot: Figure, point: _Point) -> None:
    """A circle around it."""
    plot.draw(
        source(x=[point.one_user], y=[point.all_users]),
        "Scatter",
        x="x",
        y="y",
        size=19,
        fill_color=None,
        line_color=colour("orange"),
        line_width=2.5,
    )


def _knee_text(point: _Point, t: Translate) -> str:
    text = t("The knee is at {name}: {total} tokens/s, {each} for each user.")
    return text.format(
        name=point.name, total=brief(point.all_users), each=brief(point.one_user)
    )
