"""Charts on the time axis of the run: load, throughput, and the requests themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.reports.html.chart_series import (
    MOST_STEPS,
    Bars,
    TimeAxis,
    bars,
    ended_per_s,
    in_flight,
    output_tokens_per_s,
)
from llama_load.analysis.reports.html.charts import Chart, Figure, Key, colour
from llama_load.analysis.reports.html.plot import (
    Constant,
    Model,
    range_of,
    source,
    span,
)
from llama_load.ground.languages import Translate
from llama_load.run_folder import StageRecord
from llama_load.run_folder.observed.record import OK, UNFINISHED
from llama_load.run_folder.observed.records import Records
from llama_load.tables.numbers import brief

# Requests and rows of the Gantt chart. A longer run shows fewer requests, one after the other, from
# its middle.
MOST_BARS = 2000
FEWER_BARS = 600
MOST_ROWS = 64


def shared_range(axis: TimeAxis) -> Model:
    """The x range of all charts over time, which zoom together."""
    margin = axis.seconds * 0.01
    return range_of(
        -margin, axis.seconds + margin, bounds=[-margin, axis.seconds + margin]
    )


def stage_starts_s(stages: Sequence[StageRecord], axis: TimeAxis) -> list[float]:
    """Where each stage begins, on the time axis."""
    begun_ns = []
    for stage in stages:
        if stage.begun_mono_ns is not None:
            begun_ns.append(stage.begun_mono_ns)

    starts_s: list[float] = axis.at(np.array(begun_ns, np.int64)).tolist()
    return starts_s


def mark_stages(plot: Figure, stages: Sequence[StageRecord], axis: TimeAxis) -> None:
    """A dashed line where each stage begins."""
    for at_s in stage_starts_s(stages, axis):
        plot.add(span(at_s, "height", line_color=colour("axis"), line_dash=[2, 4]))


def load_chart(
    measured: Records, axis: TimeAxis, x_range: Model, t: Translate, *, peak: int
) -> Chart:
    """Requests in flight, `peak` at most, and how many failed in each bin."""
    instants, level = in_flight(measured, axis)
    plot = Figure(t("time (s)"), t("requests in flight"), x_range=x_range)
    data = source(x=instants, y=level)
    line = plot.draw(
        data,
        "Step",
        x="x",
        y="y",
        mode="after",
        line_width=2,
        line_color=colour("blue"),
    )
    plot.draw(
        data,
        "VAreaStep",
        x="x",
        y2="y",
        y1=Constant(0),
        step_mode="after",
        fill_color=colour("pale"),
        fill_alpha=0.6,
    )
    plot.hover(
        [line],
        [(t("time (s)"), "@x{0,0.00}"), (t("requests in flight"), "@y{0,0.[0]}")],
    )

    keys = [Key("blue", t("requests in flight"))]
    _, failed_per_s = ended_per_s(measured, axis)
    if failed_per_s.any():
        _draw_failures(plot, axis, failed_per_s * np.diff(axis.edges), t)
        keys.append(Key("red", t("failed requests")))

    summary = t("At most {most} requests in flight.").format(most=f"{peak:,}")
    note = ""
    if 2 * len(measured) > MOST_STEPS:
        note = t("Means of {width} s.").format(width=f"{axis.width_s:g}")

    return Chart(plot, t("Load over time"), summary, keys, note)


def _draw_failures(
    plot: Figure, axis: TimeAxis, counts: NDArray[np.float64], t: Translate
) -> None:
    """A box for each bin with failed requests."""
    bins = np.flatnonzero(counts)
    boxes = plot.draw(
        source(left=axis.edges[bins], right=axis.edges[bins + 1], top=counts[bins]),
        "Quad",
        left="left",
        right="right",
        top="top",
        bottom=0,
        fill_color=colour("red"),
        fill_alpha=0.7,
        line_color=None,
    )
    plot.hover([boxes], [(t("failed requests"), "@top{0,0}")])


def throughput_charts(
    measured: Records, axis: TimeAxis, x_range: Model, t: Translate
) -> list[Chart]:
    """Output tokens per second, and requests per second, in each bin."""
    charts = []
    tokens = output_tokens_per_s(measured, axis)
    note = t("In bins of {width} s.").format(width=f"{axis.width_s:g}")
    if tokens.any():
        plot = Figure(t("time (s)"), t("output tokens/s"), x_range=x_range)
        _boxes(plot, axis, tokens, role="green", label=t("output tokens/s"), t=t)
        most = brief(float(tokens.max()))
        summary = t("Output tokens/s over time: at most {most} in a bin.").format(
            most=most
        )
        charts.append(
            Chart(plot, t("Output tokens per second over time"), summary, (), note)
        )

    ok, failed = ended_per_s(measured, axis)
    plot = Figure(t("time (s)"), t("requests/s"), x_range=x_range)
    _boxes(plot, axis, ok, role="teal", label=t("requests/s"), t=t)
    keys = []
    if failed.any():
        _boxes(plot, axis, failed, role="red", label=t("failed requests/s"), t=t)
        keys = [Key("teal", t("successful")), Key("red", t("failed"))]

    most = brief(float(ok.max()))
    summary = t("Requests per second over time: at most {most} in a bin.").format(
        most=most
    )
    charts.append(Chart(plot, t("Requests per second over time"), summary, keys, note))

    return charts


def _boxes(
    plot: Figure,
    axis: TimeAxis,
    heights: NDArray[np.float64],
    *,
    role: str,
    label: str,
    t: Translate,
) -> None:
    """A box for each bin of the axis."""
    boxes = plot.draw(
        source(left=axis.edges[:-1], right=axis.edges[1:], top=heights),
        "Quad",
        left="left",
        right="right",
        top="top",
        bottom=0,
        fill_color=colour(role),
        fill_alpha=0.55,
        line_color=colour(role),
        line_alpha=0.9,
    )
    time = (t("time (s)"), "@left{0,0.00} – @right{0,0.00}")
    plot.hover([boxes], [time, (label, "@top{0,0.00}")])


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the requests' time in the Gantt chart: the requests that have it, and its ends."""

    role: str
    name: str
    begins: NDArray[np.float64]
    ends: NDArray[np.float64]
    mask: NDArray[np.bool_]


def gantt_chart(
    measured: Records, axis: TimeAxis, x_range: Model, t: Translate
) -> Chart:
    """A bar per request: waiting in the client, for the first token, receiving tokens.

    Or failed, or cut. See `Bars` for the rows.
    """
    is_part = len(measured) > MOST_BARS
    drawn = bars(measured, axis, FEWER_BARS if is_part else len(measured), MOST_ROWS)
    rows = min(drawn.rows, MOST_ROWS)
    begin_s = float(drawn.started.min())
    end_s = float(drawn.ended.max())
    plot = Figure(
        t("time (s)"),
        "",
        x_range=range_of(begin_s, end_s) if is_part else x_range,
        y_range=range_of(rows - 0.4, -0.6),
        height=int(80 + 320 * min(1, rows / 24)),
    )
    plot.y_axis.set(ticker=Model("FixedTicker", ticks=[], minor_ticks=[]))
    keys = []
    for part in _drawn_parts(drawn, t):
        if part.mask.any():
            _draw_part(plot, drawn, part, t)
            keys.append(Key(part.role, part.name))

    count = f"{len(drawn.row):,}"
    notes = [t("A row holds one request at a time.")]
    if rows < drawn.rows:
        notes.append(
            t("The first {shown} of {all} rows.").format(shown=rows, all=drawn.rows)
        )

    if is_part:
        text = t(
            "{shown} of {all} requests: those from the middle of the run, {begin} to {end} s."
        )
        span_s = {"begin": f"{begin_s:,.1f}", "end": f"{end_s:,.1f}"}
        notes.append(text.format(shown=count, all=f"{len(measured):,}", **span_s))

    summary = t(
        "{count} requests, each from its start to its end, up to {rows} at once."
    ).format(count=count, rows=drawn.rows)

    return Chart(plot, t("Requests over time"), summary, keys, " ".join(notes))


def _drawn_parts(drawn: Bars, t: Translate) -> list[_Part]:
    status = np.array(drawn.status, dtype=object)
    is_cut = np.isin(status, list(UNFINISHED))
    is_failed = (status != OK) & ~is_cut
    is_ok = ~is_failed & ~is_cut
    was_queued = ~np.isnan(drawn.scheduled)
    has_tokens = is_ok & ~np.isnan(drawn.first_token)

    ended = np.where(np.isnan(drawn.last_token), drawn.ended, drawn.last_token)
    first = np.where(np.isnan(drawn.first_token), ended, drawn.first_token)

    return [
        _Part(
            "line",
            t("waiting in the client"),
            drawn.scheduled,
            drawn.started,
            was_queued,
        ),
        _Part("orange", t("waiting for the first token"), drawn.started, first, is_ok),
        _Part("blue", t("receiving tokens"), first, ended, has_tokens),
        _Part("red", t("failed"), drawn.started, drawn.ended, is_failed),
        _Part("grey", t("cut at the end"), drawn.started, drawn.ended, is_cut),
    ]


def _draw_part(plot: Figure, drawn: Bars, part: _Part, t: Translate) -> None:
    mask = part.mask
    took_s = part.ends - part.begins
    boxes = plot.draw(
        source(
            y=drawn.row[mask],
            left=part.begins[mask],
            right=part.ends[mask],
            number=drawn.number[mask],
            ms=took_s[mask] * 1e3,
        ),
        "HBar",
        y="y",
        right="right",
        left="left",
        height=0.72,
        fill_color=colour(part.role),
        line_color=None,
    )
    plot.hover([boxes], [(t("request"), "@number{0,0}"), (part.name, "@ms{0,0.0} ms")])
