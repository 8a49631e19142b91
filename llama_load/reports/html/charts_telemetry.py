"""Charts of telemetry on the time axis of the run: GPUs, the server's processes, the host, servers' own metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from llama_load.foreign_text import printable
from llama_load.metrics.gpu_identity import gpus_in_use, vram_series
from llama_load.observed.telemetry_names import GPUS, HOST, OWN, POWER, SERVER
from llama_load.observed.telemetry_series import Series, Telemetry
from llama_load.reports.html.chart_series import TimeAxis, at_most
from llama_load.reports.html.charts import Chart, Figure, Key, colour, series_colours
from llama_load.reports.html.plot import Model, source
from llama_load.reports.translations import Translate
from llama_load.tables.numbers import brief
from llama_load.targets.servers import METRICS
from llama_load.units import GIB

MOST_POINTS = 600  # of a curve
MOST_CURVES = 6
OURS = (GPUS, HOST, SERVER, POWER, OWN)


@dataclass(frozen=True, slots=True)
class TelemetryChart:
    """A chart: its title with the unit; the metrics whose series it shows, with the names of their curves; what the values are
    divided by. `is_rate`: of counters, their growth per second."""

    title: str
    metrics: Mapping[str, str]
    unit: float = 1.0
    is_rate: bool = False


def _named(*roles: tuple[str, str], end: str = "") -> dict[str, str]:
    """Names of all kinds of servers for these fields of `Metrics`, with the lines that they make."""
    names = ((metric.prefix, getattr(metric, role), line) for metric in METRICS for role, line in roles)
    return {f"{prefix}{name}{end}": line for prefix, name, line in names if name}


# GPU memory is special: only the server's, of the GPUs that it uses.
VRAM = TelemetryChart("GPU memory (GiB)", {}, GIB)
CHARTS = (
    TelemetryChart("GPU utilization (%)", {"gpu_utilization_ratio": ""}, 0.01),
    VRAM,
    TelemetryChart("Power (W)", {"gpu_power_watts": "", "power_watts": "power command"}),
    TelemetryChart("GPU temperature (°C)", {"gpu_temperature_celsius": ""}),
    TelemetryChart("CPU (cores)", {"server_cpu_seconds_total": "server", "host_cpu_seconds_total": "host"}, is_rate=True),
    TelemetryChart("Memory (GiB)", {"server_memory_bytes": "server", "host_memory_used_bytes": "host"}, GIB),
    TelemetryChart("Requests in the server", _named(("running", "processing"), ("waiting", "waiting"))),
    TelemetryChart("KV cache in use (%)", {f"{metric.prefix}{name}": "" for metric in METRICS for name in metric.kv_used}, 0.01),
    TelemetryChart(
        "Cached prompt tokens per second",
        _named(("hits", "prompt cache"), ("external_hits", "external cache"), end="_total"),
        is_rate=True,
    ),
    TelemetryChart("Preemptions per second", _named(("preemptions", ""), end="_total"), is_rate=True),
)


def telemetry_charts(telemetry: Telemetry, axis: TimeAxis, x_range: Model, t: Translate) -> Iterator[Chart]:
    """A chart for each of `CHARTS` that has samples within the run."""
    for planned in CHARTS:
        if (all_series := _of(planned, telemetry)) and (chart := _chart(planned, all_series, axis, x_range, t)) is not None:
            yield chart


def _of(chart: TelemetryChart, telemetry: Telemetry) -> list[Series]:
    if chart is VRAM:
        vram = [vram_series(telemetry, source_, gpu) for source_, gpu in gpus_in_use(telemetry)]
        return [series for series in vram if series is not None]
    return [series for metric in chart.metrics for series in telemetry.find(metric)]


def _chart(chart: TelemetryChart, all_series: Sequence[Series], axis: TimeAxis, x_range: Model, t: Translate) -> Chart | None:
    curves = [
        (name, curve)
        for name, series in zip(_names(chart, all_series, t), all_series, strict=True)
        if (curve := _curve(chart, series, axis))
    ]
    if not curves:
        return None
    shown = curves[:MOST_CURVES]
    plot = Figure(t("time (s)"), t(chart.title), x_range=x_range, height=200)
    keys, most = [], 0.0
    for role, (name, (instants, values)) in zip(series_colours(len(shown)), shown, strict=True):
        data = source(x=instants, y=values)
        line = plot.draw(data, "Line", x="x", y="y", line_width=2, line_color=colour(role))
        if len(instants) < 3:
            plot.draw(data, "Scatter", x="x", y="y", size=5, fill_color=colour(role), line_color=None)
        plot.hover([line], [(t("time (s)"), "@x{0,0.00}"), (t(chart.title), "@y{0,0.[00]}")])
        keys.append(Key(role, name))
        most = max(most, float(values.max()))
    note = t("The first {shown} of {all}.").format(shown=len(shown), all=len(curves)) if len(shown) < len(curves) else ""
    summary = t("{name} over time: at most {most}.").format(name=t(chart.title), most=brief(most))
    return Chart(plot, t(chart.title), summary, keys, note)


def _curve(chart: TelemetryChart, series: Series, axis: TimeAxis) -> tuple[Any, Any] | None:
    """Seconds and values within the run, with a sample before and one after it; None without any."""
    instants, values = axis.at(series.t_ns), series.values
    if chart.is_rate:
        if len(values) < 2:
            return None
        steps = np.diff(instants)
        good = steps > 0
        grown = np.maximum(np.diff(values), 0.0)[good] / steps[good]
        instants, values = ((instants[1:] + instants[:-1]) / 2)[good], grown
    first = max(0, int(np.searchsorted(instants, 0.0)) - 1)
    last = int(np.searchsorted(instants, axis.seconds)) + 1
    instants, values = instants[first:last], values[first:last] / chart.unit
    chosen = at_most(len(values), MOST_POINTS)
    return (instants[chosen], values[chosen]) if len(chosen) else None


def _names(chart: TelemetryChart, all_series: Sequence[Series], t: Translate) -> list[str]:
    """The name of each series: its GPU, what it measures, and its source where there are several."""
    several = len({series.source for series in all_series if series.source not in OURS}) > 1
    names = []
    for series in all_series:
        parts = [f"GPU {series.labels['gpu']}"] if "gpu" in series.labels else []
        parts += [t(name)] if (name := chart.metrics.get(series.metric)) else []
        parts += [series.source] if several and series.source not in OURS else []
        names.append(printable(" · ".join(parts) or series.source, 80))
    return names
