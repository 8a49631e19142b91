"""Live figures in Prometheus' text format.

Histograms have six buckets a decade from 0.1 ms to 1000 s; their counts are exact, because each bound is one of the sketch's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from llama_load.foreign_text import printable
from llama_load.live.figures import LATENCIES, Group, GroupKey, LiveFigures
from llama_load.live.sketch import HISTOGRAM_BUCKETS, bounds_ms
from llama_load.live.view import stage_name
from llama_load.metrics.definitions import BY_KEY

if TYPE_CHECKING:
    from prometheus_client.core import Metric

LABELS = ("workload", "stage", "host")
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BOUNDS = [f"{bound / 1000:.6g}" for bound in bounds_ms(HISTOGRAM_BUCKETS)]
MASTER_LAG = "Master lag (s): records"  # also the title of its chart and the name of its line
# The gauges of `LiveFigures.gauges` that are metrics of their own; all others are samples of `llama_load_telemetry`.
GAUGES = {
    "in_flight": ("requests_in_flight", "Requests in flight."),
    "waiting": ("requests_waiting", "Scheduled requests that wait at the client for the limit of requests in flight."),
    "workers": ("workers", "Connected workers; 1 without a swarm."),
    MASTER_LAG: ("master_lag_seconds", "Time from the end of a request until a swarm's master has its record on disk."),
    "users": ("users", "Users that Locust runs."),
}

_COUNTERS: tuple[tuple[str, str, Callable[[Group], int]], ...] = (
    ("requests_completed", "Measured requests with a complete, valid answer.", lambda group: group.completed),
    ("prompt_tokens", "Prompt tokens of measured requests with a complete, valid answer.", lambda group: group.prompt_tokens),
    ("output_tokens", "Output tokens of measured requests with a complete, valid answer.", lambda group: group.output_tokens),
)


def exposition(live: LiveFigures | None, stages: Sequence[str], info: Mapping[str, str]) -> bytes:
    """The text of /metrics. `live` None: there has been no run. `stages` names the stages; `info` are labels of the run."""
    from prometheus_client import CollectorRegistry, generate_latest

    class Collector:
        def collect(self) -> Iterator[Metric]:
            yield from _metrics(live, stages, info)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector())
    return generate_latest(registry)


def _metrics(live: LiveFigures | None, stages: Sequence[str], info: Mapping[str, str]) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    def gauge(name: str, text: str, value: float) -> Metric:
        return GaugeMetricFamily(f"llama_load_{name}", text, value=value)

    running = GaugeMetricFamily("llama_load_run_info", "The present or last run; always 1.", labels=tuple(info))
    if live is None:
        yield gauge("measuring", "1 while requests are measured, else 0.", 0)
        return
    running.add_metric([printable(value) for value in info.values()], 1)
    yield running
    yield gauge("measuring", "1 while requests are measured, else 0.", float("measuring" in live.phase))
    for name, (metric, text) in GAUGES.items():
        yield gauge(metric, text, live.gauges.get(name, 0))
    yield gauge("lateness_seconds", "Largest lateness of scheduled requests in the last 10 s.", (live.lateness_ms or 0) / 1000)
    groups = [(_labels(key, stages), group) for key, group in live.groups().items()]

    for name, text, value in _COUNTERS:
        counter = CounterMetricFamily(f"llama_load_{name}", text, labels=LABELS)
        for labels, group in groups:
            counter.add_metric(labels, value(group))
        yield counter
    failures = CounterMetricFamily(
        "llama_load_requests_failed", "Measured requests that failed, by class.", labels=(*LABELS, "class")
    )
    for labels, group in groups:
        for name, count in group.failures.items():
            failures.add_metric([*labels, name], count)
    yield failures
    for name in LATENCIES:
        family = HistogramMetricFamily(f"llama_load_{name}_seconds", f"{_title(name)} of measured requests.", labels=LABELS)
        for labels, group in groups:
            family.add_metric(labels, buckets=_buckets(group, name), sum_value=group.sums_ms[name] / 1000)
        yield family
    telemetry = [(name, value) for name, value in live.gauges.items() if name not in GAUGES]
    if telemetry:
        samples = GaugeMetricFamily("llama_load_telemetry", "Latest value of a meter, such as a GPU's power.", labels=("series",))
        for series, latest in telemetry:
            samples.add_metric([printable(series)], latest)
        yield samples


def _labels(key: GroupKey, stages: Sequence[str]) -> list[str]:
    return [printable(key.workload), printable(stage_name(stages, key.stage)), printable(key.host)]


def _buckets(group: Group, latency: str) -> list[Any]:
    cumulative = np.cumsum(group.sketches[latency])
    pairs: list[Any] = list(zip(_BOUNDS, cumulative[HISTOGRAM_BUCKETS].tolist(), strict=True))
    return [*pairs, ("+Inf", int(cumulative[-1]))]


def _title(latency: str) -> str:
    row = BY_KEY[latency]
    return f"{row.title} ({row.name})"
