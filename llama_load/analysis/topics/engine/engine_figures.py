"""The engine's own counts, from its page of metrics, over the measured requests.

| key | metric of vLLM (0.32 on) |
|---|---|
| `cached_by_tier` | `prompt_tokens_cached_by_source`: device, host, disk, p2p |
| `waiting_by_reason` | `num_requests_waiting_by_reason`: capacity, deferred |
| `fetching_by_stage` | `num_requests_kv_fetch_by_stage` |
| `refused_by_reason` | `admission_rejections` |
| `transfers` | `nixl_xfer_time_seconds`, `nixl_num_failed_transfers` |

All engines and servers together. What stayed at zero, or is not counted, is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from llama_load.analysis.topics.topic import TopicInput
from llama_load.run_folder.observed.telemetry_series import Series, Telemetry
from llama_load.run_folder.observed.window import Window, window_of

PROMPT_TOKENS = "vllm:prompt_tokens_total"
CACHED = "vllm:prompt_tokens_cached_by_source_total"
WAITING = "vllm:num_requests_waiting_by_reason"
FETCHING = "vllm:num_requests_kv_fetch_by_stage"
REFUSED = "vllm:admission_rejections_total"
TRANSFERS = "vllm:nixl_xfer_time_seconds"
FAILED_TRANSFERS = "vllm:nixl_num_failed_transfers_total"
DEVICE = "device"


@dataclass(frozen=True, slots=True)
class Waiting:
    """Requests that waited: over time the mean, and the peak of the sum of all engines at most."""

    mean: float
    peak: float


@dataclass(frozen=True, slots=True)
class Transfers:
    """Transfers of KV caches between engines: how many, their mean time, and how many failed."""

    count: int
    mean_ms: float | None
    failed: int


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """See the module. `prompt_tokens`: of all requests that the engines admitted meanwhile; None:
    not counted."""

    prompt_tokens: int | None
    cached_by_tier: dict[str, int]
    waiting_by_reason: dict[str, Waiting]
    fetching_by_stage: dict[str, Waiting]
    refused_by_reason: dict[str, int]
    transfers: Transfers | None


def engine_figures(given: TopicInput) -> EngineFigures | None:
    """The figures of a run; None where the engine says nothing of all this."""
    window = window_of(given.measured, given.cut_ns)
    return figures_in(given.run.telemetry, window)


def figures_in(telemetry: Telemetry, window: Window) -> EngineFigures | None:
    """See `engine_figures`."""
    cached = _grown(telemetry, CACHED, "source", window)
    waiting = _waiting(telemetry, WAITING, "reason", window)
    fetching = _waiting(telemetry, FETCHING, "stage", window)
    refused = _grown(telemetry, REFUSED, "reason", window)
    transfers = _transfers(telemetry, window)
    if not any((cached, waiting, fetching, refused, transfers)):
        return None

    prompt = _increase(telemetry, PROMPT_TOKENS, window)
    return EngineFigures(
        None if prompt is None else round(prompt),
        cached,
        waiting,
        fetching,
        refused,
        transfers,
    )


def _grown(
    telemetry: Telemetry, metric: str, label: str, window: Window
) -> dict[str, int]:
    """By how much the counters grew, by a label; without those that did not."""

    def of_series(series: Series) -> float | None:
        return series.increase(window, around=True)

    found = {}
    for name, value in _by_label(telemetry, metric, label, of_series).items():
        if round(value):
            found[name] = round(value)
    return found


def _waiting(
    telemetry: Telemetry, metric: str, label: str, window: Window
) -> dict[str, Waiting]:
    """Means and peaks of gauges, by a label; without those that stayed at zero."""
    means = _by_label(telemetry, metric, label, lambda series: series.mean(window))
    peaks = _by_label(telemetry, metric, label, lambda series: series.peak(window))
    found = {}
    for name, peak in peaks.items():
        if peak > 0:
            found[name] = Waiting(means[name], peak)
    return found


def _by_label(
    telemetry: Telemetry,
    metric: str,
    label: str,
    of_series: Callable[[Series], float | None],
) -> dict[str, float]:
    """The sum over engines and servers; without what was not sampled in the window."""
    sums: dict[str, float] = {}
    for series in telemetry.find(metric):
        name = series.labels.get(label)
        value = of_series(series)
        if name is not None and value is not None:
            sums[name] = sums.get(name, 0.0) + value
    return sums


def _transfers(telemetry: Telemetry, window: Window) -> Transfers | None:
    count = _increase(telemetry, f"{TRANSFERS}_count", window)
    failed = _increase(telemetry, FAILED_TRANSFERS, window)
    if not count and not failed:
        return None

    mean_ms = None
    seconds = _increase(telemetry, f"{TRANSFERS}_sum", window)
    if count and seconds is not None:
        mean_ms = 1e3 * seconds / count
    return Transfers(round(count or 0), mean_ms, round(failed or 0))


def _increase(telemetry: Telemetry, metric: str, window: Window) -> float | None:
    """The growth of a counter of all engines; None where none of them has it."""
    grown = list(_increases(telemetry, metric, window))
    return sum(grown) if grown else None


def _increases(telemetry: Telemetry, metric: str, window: Window) -> Iterator[float]:
    for series in telemetry.find(metric):
        value = series.increase(window, around=True)
        if value is not None:
            yield value
