"""Charts of telemetry on the time axis of the run.

GPUs, the server's processes, the host, servers' own metrics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.reports.html.chart_series import TimeAxis, at_most
from llama_load.analysis.reports.html.charts import (
    Chart,
    Figure,
    Key,
    colour,
    series_colours,
)
from llama_load.analysis.reports.html.plot import Model, source
from llama_load.ground.languages import Translate
from llama_load.ground.units import GIB
from llama_load.outside.foreign_text import printable
from llama_load.run_folder.observed.gpu_identity import gpus_in_use, vram_series
from llama_load.run_folder.observed.server_identity import series_of_servers
from llama_load.run_folder.observed.telemetry_names import (
    GPUS,
    HOST,
    OWN,
    POWER,
    SERVER,
)
from llama_load.run_folder.observed.telemetry_series import Series, Telemetry
from llama_load.servers.kinds import METRICS
from llama_load.tables.numbers import brief

MOST_POINTS = 600  # of a curve
MOST_CURVES = 6
OURS = (GPUS, HOST, SERVER, POWER, OWN)


@dataclass(frozen=True, slots=True)
class TelemetryChart:
    """A chart of telemetry.

    Its title with the unit; the metrics whose series it shows, with the names of their curves; what
    the values are divided by. `is_rate`: of counters, their growth per second. `axis_label`: beside
    the y axis, where the title is too long for it. `by`: a label whose values name the curves.
    """

    title: str
    metrics: Mapping[str, str]
    unit: float = 1.0
    is_rate: bool = False
    axis_label: str = ""
    by: str = ""


def _named_fields(*roles: tuple[str, str], end: str = "") -> dict[str, str]:
    """What all kinds of servers call these fields of `Metrics`, with the lines that they make."""
    lines = {}
    for metric in METRICS:
        for role, line in roles:
            name = getattr(metric, role)
            if name:
                lines[f"{metric.prefix}{name}{end}"] = line

    return lines


def _kv_used() -> dict[str, str]:
    """What all kinds of servers call the used part of their KV cache."""
    lines = {}
    for metric in METRICS:
        for name in metric.kv_used:
            lines[f"{metric.prefix}{name}"] = ""
    return lines


# GPU memory is special: only the server's, of the GPUs that it uses.
VRAM = TelemetryChart("GPU memory (GiB)", {}, GIB)
CHARTS = (
    TelemetryChart("GPU utilization (%)", {"gpu_utilization_ratio": ""}, 0.01),
    VRAM,
    TelemetryChart(
        "Power (W)", {"gpu_power_watts": "", "power_watts": "power command"}
    ),
    TelemetryChart("GPU temperature (°C)", {"gpu_temperature_celsius": ""}),
    TelemetryChart(
        "CPU (cores)",
        {"server_cpu_seconds_total": "server", "host_cpu_seconds_total": "host"},
        is_rate=True,
    ),
    TelemetryChart(
        "Memory (GiB)",
        {"server_memory_bytes": "server", "host_memory_used_bytes": "host"},
        GIB,
    ),
    TelemetryChart(
        "Requests in the server",
        _named_fields(("running", "processing"), ("waiting", "waiting")),
    ),
    TelemetryChart("KV cache in use (%)", _kv_used(), 0.01),
    TelemetryChart(
        "Cached prompt tokens per second",
        _named_fields(
            ("hits", "prompt cache"), ("external_hits", "external cache"), end="_total"
        ),
        is_rate=True,
        axis_label="tokens/s",
    ),
    TelemetryChart(
        "Cached prompt tokens per second by tier",
        {"vllm:prompt_tokens_cached_by_source_total": ""},
        is_rate=True,
        axis_label="tokens/s",
        by="source",
    ),
    TelemetryChart(
        "Waiting requests by reason",
        {"vllm:num_requests_waiting_by_reason": ""},
        axis_label="waiting",
        by="reason",
    ),
    TelemetryChart(
        "Preemptions per second",
        _named_fields(("preemptions", ""), end="_total"),
        is_rate=True,
    ),
)


def telemetry_charts(
    telemetry: Telemetry, axis: TimeAxis, x_range: Model, t: Translate
) -> Iterator[Chart]:
    """A chart for each of `CHARTS` that has samples within the run."""
    for planned in CHARTS:
        all_series = _series_of(planned, telemetry)
        if not all_series:
            continue

        chart = _chart(planned, all_series, axis, x_range, t)
        if chart is not None:
            yield chart


def _series_of(chart: TelemetryChart, telemetry: Telemetry) -> list[Series]:
    if chart is VRAM:
        of_gpus = []
        for source_, gpu in gpus_in_use(telemetry):
            vram = vram_series(telemetry, source_, gpu)
            if vram is not None:
                of_gpus.append(vram)
        return of_gpus

    all_series: list[Series] = []
    for metric in chart.metrics:
        all_series += series_of_servers(telemetry, metric)

    return all_series


def _chart(
    chart: TelemetryChart,
    all_series: Sequence[Series],
    axis: TimeAxis,
    x_range: Model,
    t: Translate,
) -> Chart | None:
    curves = []
    for name, series in zip(_names(chart, all_series, t), all_series, strict=True):
        curve = _curve(chart, series, axis)
        if curve is not None:
            curves.append((name, curve))

    if not curves:
        return None

    title = t(chart.title)
    y_label = t(chart.axis_label) if chart.axis_label else title
    plot = Figure(t("time (s)"), y_label, x_range=x_range, height=200)
    shown = curves[:MOST_CURVES]
    keys = []
    most = 0.0
    for role, (name, (instants, values)) in zip(
        series_colours(len(shown)), shown, strict=True
    ):
        line = _draw_curve(plot, instants, values, colour(role))
        plot.hover([line], [(t("time (s)"), "@x{0,0.00}"), (title, "@y{0,0.[00]}")])
        keys.append(Key(role, name))
        most = max(most, float(values.max()))

    note = ""
    if len(shown) < len(curves):
        note = t("The first {shown} of {all}.").format(
            shown=len(shown), all=len(curves)
        )

    summary = t("{name} over time: at most {most}.").format(
        name=title, most=brief(most)
    )

    return Chart(plot, title, summary, keys, note)


def _draw_curve(
    plot: Figure,
    instants: NDArray[np.float64],
    values: NDArray[np.float64],
    line_color: str,
) -> Model:
    """A line; of one or two samples also dots, which can be seen."""
    data = source(x=instants, y=values)
    line = plot.draw(data, "Line", x="x", y="y", line_width=2, line_color=line_color)
    if len(instants) < 3:
        plot.draw(
            data,
            "Scatter",
            x="x",
            y="y",
            size=5,
            fill_color=line_color,
            line_color=None,
        )
    return line


def _curve(
    chart: TelemetryChart, series: Series, axis: TimeAxis
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Seconds and values within the run, with a sample before and one after it.

    None without any.
    """
    instants = axis.at(series.t_ns)
    values = series.values
    if chart.is_rate:
        if len(values) < 2:
            return None

        steps = np.diff(instants)
        good = steps > 0
        grown = np.maximum(np.diff(values), 0.0)
        middles = (instants[1:] + instants[:-1]) / 2
        instants = middles[good]
        values = grown[good] / steps[good]

    first = max(0, int(np.searchsorted(instants, 0.0)) - 1)
    last = int(np.searchsorted(instants, axis.seconds)) + 1
    instants = instants[first:last]
    values = values[first:last] / chart.unit
    chosen = at_most(len(values), MOST_POINTS)
    if not len(chosen):
        return None

    return instants[chosen], values[chosen]


def _names(
    chart: TelemetryChart, all_series: Sequence[Series], t: Translate
) -> list[str]:
    """The name of each series.

    Its GPU, what it measures, and its source where there are several.
    """
    foreign_sources = {
        series.source for series in all_series if series.source not in OURS
    }
    names = []
    for series in all_series:
        parts = []
        if "gpu" in series.labels:
            parts.append(f"GPU {series.labels['gpu']}")
        if name := chart.metrics.get(series.metric):
            parts.append(t(name))
        if chart.by in series.labels:
            parts.append(series.labels[chart.by])
        if len(foreign_sources) > 1 and series.source not in OURS:
            parts.append(series.source)

        names.append(printable(" · ".join(parts) or series.source, 80))

    return names
