"""The frontier of a sweep: output tokens/s per GPU against those of one user.

A point for each setting and load, the mean of its repeats with its interval of 95 %. A point is
dominated, and faint, if another one is better in both. Rows that are not ranked have no point.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from llama_load.analysis.reports.html.charts import Chart, Figure, Key, colour
from llama_load.analysis.reports.html.plot import source
from llama_load.ground.languages import Translate
from llama_load.lab.sweep.mean_interval import MeanInterval, mean_with_interval
from llama_load.lab.sweep.rows import NOT_SEEN, Row
from llama_load.outside.foreign_text import printable

RATE = "output_throughput"
TPOT = "mean_tpot_ms"
# What names a setting and a load in all rows.
NAMING = ("server", "workload", "load", "stage")
MOST_NAME = 60
FAINT = 0.3


@dataclass(frozen=True, slots=True)
class Point:
    """A setting with a load: tokens/s of one user and per GPU."""

    name: str
    one_user: MeanInterval
    per_gpu: MeanInterval

    @property
    def means(self) -> tuple[float, float]:
        """Of one user, and per GPU."""
        return self.one_user.mean, self.per_gpu.mean

    def is_dominated_by(self, other: Point) -> bool:
        """Whether the other one is at least as good in both, and better in one."""
        own = self.means
        others = other.means
        return others != own and others[0] >= own[0] and others[1] >= own[1]


def frontier_points(rows: Iterable[Row], settings: Sequence[str]) -> list[Point]:
    """The points of the rows that are ranked and have both figures, in the order of the rows."""
    values: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for row in rows:
        rate = row.number(RATE)
        tpot_ms = row.number(TPOT)
        is_ranked = row.is_ranked_in(RATE) and row.is_ranked_in(TPOT)
        if rate is None or not tpot_ms or not is_ranked:
            continue
        key = row.facts_named((*settings, *NAMING))
        values.setdefault(key, []).append((1e3 / tpot_ms, rate / _gpus_of(row)))

    names = _names_of_differences(list(values))
    points = []
    for name, repeats in zip(names, values.values(), strict=True):
        one_user = mean_with_interval([one for one, _ in repeats])
        per_gpu = mean_with_interval([each for _, each in repeats])
        if one_user is not None and per_gpu is not None:
            points.append(Point(name, one_user, per_gpu))
    return points


def _gpus_of(row: Row) -> int:
    """The number of GPUs; 1 where none is known."""
    text = row.fact("gpus").removesuffix(NOT_SEEN)
    return int(text) if text.isdigit() and int(text) else 1


def _names_of_differences(keys: Sequence[tuple[str, ...]]) -> list[str]:
    """Each key by what is not the same in all."""
    differing = []
    for place in range(len(keys[0]) if keys else 0):
        if len({key[place] for key in keys}) > 1:
            differing.append(place)
    names = []
    for key in keys:
        texts = [key[place] for place in differing if key[place]]
        names.append(printable(", ".join(texts), MOST_NAME))
    return names


def frontier_chart(
    rows: Sequence[Row], settings: Sequence[str], t: Translate
) -> Chart | None:
    """None with fewer than two points, or where only one of both figures differs."""
    points = frontier_points(rows, settings)
    if len({point.means for point in points}) < 2:
        return None

    has_gpus = any(row.fact("gpus") for row in rows)
    across = t("output tokens/s, one user")
    up = t("output tokens/s per GPU") if has_gpus else t("output tokens/s, all users")
    plot = Figure(across, up, zoom="both", height=320)
    best = [point for point in points if not any(map(point.is_dominated_by, points))]
    others = [point for point in points if point not in best]
    keys = [Key("blue", t("no other setting is better in both"))]
    _draw_points(plot, best, 1.0, (across, up))
    if others:
        _draw_points(plot, others, FAINT, (across, up))
        keys.append(Key("grey", t("another setting is better in both")))

    summary = t("{best} of {count} settings and loads are on the frontier.").format(
        best=len(best), count=len(points)
    )
    return Chart(plot, t("Throughput against the speed of one user"), summary, keys)


def _draw_points(
    plot: Figure, points: Sequence[Point], alpha: float, axes: tuple[str, str]
) -> None:
    role = "blue" if alpha == 1 else "grey"
    drawn = {"line_color": colour(role), "line_alpha": alpha}
    for point in points:
        one_user, per_gpu = point.means
        # a cross of both intervals
        plot.draw(
            source(
                x0=[point.one_user.low, one_user],
                x1=[point.one_user.high, one_user],
                y0=[per_gpu, point.per_gpu.low],
                y1=[per_gpu, point.per_gpu.high],
            ),
            "Segment",
            x0="x0",
            x1="x1",
            y0="y0",
            y1="y1",
            line_width=1.5,
            **drawn,
        )

    dots = plot.draw(
        source(
            x=[point.one_user.mean for point in points],
            y=[point.per_gpu.mean for point in points],
            name=[point.name for point in points],
        ),
        "Scatter",
        x="x",
        y="y",
        size=9,
        fill_color=colour(role),
        fill_alpha=alpha,
        **drawn,
    )
    across_text, up_text = axes
    lines = [("", "@name"), (across_text, "@x{0,0.0}"), (up_text, "@y{0,0.0}")]
    plot.hover([dots], lines)
