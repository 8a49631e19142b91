"""Live figures in Prometheus' text format.

Histograms have six buckets a decade from 0.1 ms to 1000 s; their counts are exact, because each
bound is one of the sketch's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from llama_load.loadgen.live.figures import LiveFigures
from llama_load.loadgen.live.gauges import MASTER_LAG
from llama_load.loadgen.live.groups import LATENCIES, Group, GroupKey
from llama_load.loadgen.live.sketch import HISTOGRAM_BUCKETS, bounds_ms
from llama_load.loadgen.live.stage_names import stage_name
from llama_load.outside.foreign_text import printable
from llama_load.run_folder.vocabulary.definitions import BY_KEY

if TYPE_CHECKING:
    from prometheus_client.core import Metric

LABELS = ("workload", "stage", "host")
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BOUNDS = [f"{bound / 1000:.6g}" for bound in bounds_ms(HISTOGRAM_BUCKETS)]
# The gauges of `LiveFigures.gauges` that are metrics of their own; all others are samples of
# `llama_load_telemetry`.
GAUGES = {
    "in_flight": ("requests_in_flight", "Requests in flight."),
    "waiting": (
        "requests_waiting",
        "Scheduled requests that wait at the client for the limit of requests in flight.",
    ),
    "workers": ("workers", "Connected workers; 1 without a swarm."),
    MASTER_LAG: (
        "master_lag_seconds",
        "Time from the end of a request until a swarm's master has its record on disk.",
    ),
    "users": ("users", "Users that Locust runs."),
    "conversations": ("conversations", "Conversations that have begun and not ended."),
}

# Groups with the values of `LABELS`.
_LabelledGroups = Sequence[tuple[list[str], Group]]

_COUNTERS: tuple[tuple[str, str, Callable[[Group], int]], ...] = (
    (
        "requests_completed",
        "Measured requests with a complete, valid answer.",
        lambda group: group.completed,
    ),
    (
        "prompt_tokens",
        "Prompt tokens of measured requests with a complete, valid answer.",
        lambda group: group.prompt_tokens,
    ),
    (
        "output_tokens",
        "Output tokens of measured requests with a complete, valid answer.",
        lambda group: group.output_tokens,
    ),
)


def exposition(
    live: LiveFigures | None, stages: Sequence[str], info: Mapping[str, str]
) -> bytes:
    """The text of /metrics.

    `live` None: there has been no run. `stages` names the stages; `info` are labels of the run.
    """
    from prometheus_client import CollectorRegistry, generate_latest

    class Collector:
        def collect(self) -> Iterator[Metric]:
            yield from _metrics(live, stages, info)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector())

    return generate_latest(registry)


def _metrics(
    live: LiveFigures | None, stages: Sequence[str], info: Mapping[str, str]
) -> Iterator[Metric]:
    is_measuring = live is not None and "measuring" in live.phase
    text = "1 while requests are measured, else 0."
    measuring = _gauge("measuring", text, int(is_measuring))
    if live is None:
        yield measuring
        return

    yield _run_info(info)
    yield measuring
    for name, (metric, text) in GAUGES.items():
        value = live.gauges.get(name, 0)
        yield _gauge(metric, text, value)

    late_ms = live.lateness_ms or 0
    text = "Largest lateness of scheduled requests in the last 10 s."
    yield _gauge("lateness_seconds", text, late_ms / 1000)

    groups = []
    for key, group in live.groups().items():
        groups.append((_labels(key, stages), group))

    yield from _counters(groups)
    yield _failures(groups)
    for name in LATENCIES:
        yield _histogram(name, groups)

    telemetry = {}
    for name, value in live.gauges.items():
        if name not in GAUGES:
            telemetry[name] = value

    if telemetry:
        yield _telemetry(telemetry)


def _gauge(name: str, text: str, value: float) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(f"llama_load_{name}", text, value=value)


def _run_info(info: Mapping[str, str]) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    text = "The present or last run; always 1."
    family = GaugeMetricFamily("llama_load_run_info", text, labels=tuple(info))
    values = [printable(value) for value in info.values()]
    family.add_metric(values, 1)
    return family


def _counters(groups: _LabelledGroups) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily

    for name, text, value_of in _COUNTERS:
        family = CounterMetricFamily(f"llama_load_{name}", text, labels=LABELS)
        for labels, group in groups:
            family.add_metric(labels, value_of(group))

        yield family


def _failures(groups: _LabelledGroups) -> Metric:
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(
        "llama_load_requests_failed",
        "Measured requests that failed, by class.",
        labels=(*LABELS, "class"),
    )
    for labels, group in groups:
        for name, count in group.failures.items():
            values = [*labels, name]
            family.add_metric(values, count)

    return family


def _histogram(latency: str, groups: _LabelledGroups) -> Metric:
    from prometheus_client.core import HistogramMetricFamily

    text = f"{_title(latency)} of measured requests."
    family = HistogramMetricFamily(f"llama_load_{latency}_seconds", text, labels=LABELS)
    for labels, group in groups:
        buckets = _buckets(group, latency)
        sum_s = group.sums_ms[latency] / 1000
        family.add_metric(labels, buckets=buckets, sum_value=sum_s)

    return family


def _telemetry(values: Mapping[str, float]) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(
        "llama_load_telemetry",
        "Latest value of a meter, such as a GPU's power.",
        labels=("series",),
    )
    for series, latest in values.items():
        family.add_metric([printable(series)], latest)

    return family


def _labels(key: GroupKey, stages: Sequence[str]) -> list[str]:
    """The values of `LABELS`."""
    stage = stage_name(stages, key.stage)
    return [printable(key.workload), printable(stage), printable(key.host)]


def _buckets(group: Group, latency: str) -> list[Any]:
    cumulative = np.cumsum(group.sketches[latency])
    counts = cumulative[HISTOGRAM_BUCKETS].tolist()
    pairs: list[Any] = list(zip(_BOUNDS, counts, strict=True))
    total = int(cumulative[-1])

    return [*pairs, ("+Inf", total)]


def _title(latency: str) -> str:
    row = BY_KEY[latency]
    return f"{row.title} ({row.name})"
