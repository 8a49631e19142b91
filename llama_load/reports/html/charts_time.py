"""Charts on the time axis of the run: load, throughput, and the requests themselves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from llama_load.observed.record import OK, UNFINISHED
from llama_load.observed.records import Records
from llama_load.reports.html.chart_series import MOST_STEPS, TimeAxis, bars, ended_per_s, in_flight, output_tokens_per_s
from llama_load.reports.html.charts import Chart, Figure, Key, colour
from llama_load.reports.html.plot import Constant, Model, range_of, source, span
from llama_load.reports.translations import Translate
from llama_load.run_folder import StageRecord
from llama_load.tables.numbers import brief

# Requests and rows of the Gantt chart. A longer run shows fewer requests, one after the other, from its middle.
MOST_BARS = 2000
FEWER_BARS = 600
MOST_ROWS = 64


def shared_range(axis: TimeAxis) -> Model:
    """The x range of all charts over time, which zoom together."""
    margin = axis.seconds * 0.01
    return range_of(-margin, axis.seconds + margin, bounds=[-margin, axis.seconds + margin])


def stage_starts_s(stages: Sequence[StageRecord], axis: TimeAxis) -> list[float]:
    """Where each stage begins, on the time axis."""
    return [float(at_s) for at_s in axis.at(np.array([s.begun_mono_ns for s in stages if s.begun_mono_ns is not None], np.int64))]


def mark_stages(plot: Figure, stages: Sequence[StageRecord], axis: TimeAxis) -> None:
    """A dashed line where each stage begins."""
    for at_s in stage_starts_s(stages, axis):
        plot.add(span(at_s, "height", line_color=colour("axis"), line_dash=[2, 4]))


def load_chart(measured: Records, axis: TimeAxis, x_range: Model, t: Translate, *, peak: int) -> Chart:
    """Requests in flight, `peak` at most, and how many failed in each bin."""
    instants, level = in_flight(measured, axis)
    plot = Figure(t("time (s)"), t("requests in flight"), x_range=x_range)
    data = source(x=instants, y=level)
    line = plot.draw(data, "Step", x="x", y="y", mode="after", line_width=2, line_color=colour("blue"))
    area = {"y1": Constant(0), "step_mode": "after", "fill_color": colour("pale"), "fill_alpha": 0.6}
    plot.draw(data, "VAreaStep", x="x", y2="y", **area)
    plot.hover([line], [(t("time (s)"), "@x{0,0.00}"), (t("requests in flight"), "@y{0,0.[0]}")])
    keys = [Key("blue", t("requests in flight"))]
    _, failed = ended_per_s(measured, axis)
    if failed.any():
        counts = failed * np.diff(axis.edges)
        rows = np.flatnonzero(counts)
        of_bin = source(left=axis.edges[rows], right=axis.edges[rows + 1], top=counts[rows])
        look = {"fill_color": colour("red"), "fill_alpha": 0.7, "line_color": None}
        boxes = plot.draw(of_bin, "Quad", left="left", right="right", top="top", bottom=0, **look)
        plot.hover([boxes], [(t("failed requests"), "@top{0,0}")])
        keys.append(Key("red", t("failed requests")))
    summary = t("At most {most} requests in flight.").format(most=f"{peak:,}")
    note = t("Means of {width} s.").format(width=f"{axis.width_s:g}") if 2 * len(measured) > MOST_STEPS else ""
    return Chart(plot, t("Load over time"), summary, keys, note)


def throughput_charts(measured: Records, axis: TimeAxis, x_range: Model, t: Translate) -> list[Chart]:
    """Output tokens per second, and requests per second, in each bin."""
    charts = []
    tokens = output_tokens_per_s(measured, axis)
    note = t("In bins of {width} s.").format(width=f"{axis.width_s:g}")
    if tokens.any():
        plot = Figure(t("time (s)"), t("output tokens/s"), x_range=x_range)
        _boxes(plot, axis, tokens, role="green", label=t("output tokens/s"), t=t)
        summary = t("Output tokens/s over time: at most {most} in a bin.").format(most=brief(float(tokens.max())))
        charts.append(Chart(plot, t("Output tokens per second over time"), summary, (), note))
    ok, failed = ended_per_s(measured, axis)
    plot = Figure(t("time (s)"), t("requests/s"), x_range=x_range)
    _boxes(plot, axis, ok, role="teal", label=t("requests/s"), t=t)
    keys = []
    if failed.any():
        _boxes(plot, axis, failed, role="red", label=t("failed requests/s"), t=t)
        keys = [Key("teal", t("successful")), Key("red", t("failed"))]
    summary = t("Requests per second over time: at most {most} in a bin.").format(most=brief(float(ok.max())))
    charts.append(Chart(plot, t("Requests per second over time"), summary, keys, note))
    return charts


def _boxes(plot: Figure, axis: TimeAxis, heights: NDArray[np.float64], *, role: str, label: str, t: Translate) -> None:
    """A box for each bin of the axis."""
    data = source(left=axis.edges[:-1], right=axis.edges[1:], top=heights)
    look = {"fill_color": colour(role), "fill_alpha": 0.55, "line_color": colour(role), "line_alpha": 0.9}
    boxes = plot.draw(data, "Quad", left="left", right="right", top="top", bottom=0, **look)
    plot.hover([boxes], [(t("time (s)"), "@left{0,0.00} – @right{0,0.00}"), (label, "@top{0,0.00}")])


def gantt_chart(measured: Records, axis: TimeAxis, x_range: Model, t: Translate) -> Chart:
    """A bar per request: waiting in the client, for the first token, receiving tokens; failed or cut. See `Bars` for the rows."""
    is_part = len(measured) > MOST_BARS
    drawn = bars(measured, axis, FEWER_BARS if is_part else len(measured), MOST_ROWS)
    count, rows = len(drawn.row), min(drawn.rows, MOST_ROWS)
    begin_s, end_s = float(drawn.started.min()), float(drawn.ended.max())
    if is_part:
        x_range = range_of(begin_s, end_s)
    y_range = range_of(rows - 0.4, -0.6)
    plot = Figure(t("time (s)"), "", x_range=x_range, y_range=y_range, height=int(80 + 320 * min(1, rows / 24)))
    plot.y_axis.set(ticker=Model("FixedTicker", ticks=[], minor_ticks=[]))
    status = np.array(drawn.status, dtype=object)
    ended = np.where(np.isnan(drawn.last_token), drawn.ended, drawn.last_token)
    first = np.where(np.isnan(drawn.first_token), ended, drawn.first_token)
    is_cut = np.isin(status, list(UNFINISHED))
    is_failed = (status != OK) & ~is_cut
    parts = [
        ("line", t("waiting in the client"), drawn.scheduled, drawn.started, ~np.isnan(drawn.scheduled)),
        ("orange", t("waiting for the first token"), drawn.started, first, ~is_failed & ~is_cut),
        ("blue", t("receiving tokens"), first, ended, ~is_failed & ~is_cut & ~np.isnan(drawn.first_token)),
        ("red", t("failed"), drawn.started, drawn.ended, is_failed),
        ("grey", t("cut at the end"), drawn.started, drawn.ended, is_cut),
    ]
    keys = []
    for role, name, begins, ends, mask in parts:
        if not mask.any():
            continue
        data = source(
            y=drawn.row[mask], left=begins[mask], right=ends[mask], number=drawn.number[mask], ms=(ends - begins)[mask] * 1e3
        )
        boxes = plot.draw(data, "HBar", y="y", right="right", left="left", height=0.72, fill_color=colour(role), line_color=None)
        plot.hover([boxes], [(t("request"), "@number{0,0}"), (name, "@ms{0,0.0} ms")])
        keys.append(Key(role, name))
    note = t("A row holds one request at a time.")
    if rows < drawn.rows:
        note += " " + t("The first {shown} of {all} rows.").format(shown=rows, all=drawn.rows)
    if is_part:
        note += " " + t("{shown} of {all} requests: those from the middle of the run, {begin} to {end} s.").format(
            shown=f"{count:,}", all=f"{len(measured):,}", begin=f"{begin_s:,.1f}", end=f"{end_s:,.1f}"
        )
    summary = t("{count} requests, each from its start to its end, up to {rows} at once.").format(
        count=f"{count:,}", rows=drawn.rows
    )
    return Chart(plot, t("Requests over time"), summary, keys, note)
