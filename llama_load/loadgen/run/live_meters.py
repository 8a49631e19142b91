"""The meters that the live page shows over time: the server's slots and memory, GPUs, CPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from llama_load.ground.units import GIB, NS_PER_S
from llama_load.loadgen.run.live_telemetry import LiveSeries
from llama_load.run_folder.observed.gpu_identity import Place, distinct
from llama_load.run_folder.observed.server_identity import INFO, OF_PROCESSES, repeating
from llama_load.run_folder.observed.telemetry_names import GPU
from llama_load.servers.kinds import METRICS


@dataclass(frozen=True, slots=True)
class Meter:
    """A series that is shown: its metric, the title of its chart, the divisor of its values;
    `label` tells lines of a chart apart. `is_counter`: its increase per second is shown."""

    metric: str
    title: str
    divisor: float = 1.0
    label: str = ""
    line: str = "value"
    is_counter: bool = False


def _of_servers() -> Iterator[Meter]:
    """The meters of each kind of server that has metrics."""
    for names in METRICS:
        for name, line in zip(
            (names.running, names.waiting), names.running_words, strict=True
        ):
            if name:
                yield Meter(
                    f"{names.prefix}{name}", "Requests in the server", line=line
                )
        if names.kv_used:
            yield Meter(
                f"{names.prefix}{names.kv_used[0]}", "KV cache (%)", 0.01, line="used"
            )


METERS = (
    Meter("slots_processing", "Server slots", line="busy"),
    *_of_servers(),
    Meter("gpu_utilization_ratio", "GPU utilisation (%)", 0.01, "gpu", "GPU"),
    Meter("gpu_power_watts", "GPU power (W)", 1.0, "gpu", "GPU"),
    Meter("gpu_memory_used_bytes", "GPU memory (GiB)", GIB, "gpu", "GPU"),
    Meter("server_cpu_seconds_total", "CPU (cores)", line="server", is_counter=True),
    Meter(
        "host_cpu_seconds_total", "CPU (cores)", line="this machine", is_counter=True
    ),
    Meter("server_memory_bytes", "Server memory (GiB)", GIB, line="server"),
)
_BY_METRIC = {meter.metric: meter for meter in METERS}
# Separates the title of a chart from the name of a line in the name of a gauge.
SEPARATOR = ": "


def present_values(series: Iterable[LiveSeries]) -> dict[str, float]:
    """The newest value of each meter, named `GPU power (W): GPU 0`; those of several servers are
    added up."""
    series = list(series)
    infos = [(item.source, item.labels) for item in series if item.metric == "gpu_info"]
    places = distinct(infos)
    repeated = {
        Place(source, labels[GPU]) for source, labels in infos if GPU in labels
    } - set(places)
    servers = [(item.source, item.labels) for item in series if item.metric == INFO]
    repeating_servers = repeating(servers)
    numbers = Counter(place.gpu for place in places)
    readings: dict[str, float] = {}
    for item in series:
        if Place(item.source, item.labels.get(GPU, "")) in repeated:
            continue
        if item.source in repeating_servers and item.metric in OF_PROCESSES:
            continue
        meter = _BY_METRIC.get(item.metric)
        if meter is None:
            continue
        value = _value_of_meter(meter, item)
        if value is None:
            continue

        name = meter.line
        if meter.label:
            name = f"{meter.line} {item.labels.get(meter.label, '')}".strip()
            if numbers[item.labels.get(GPU, "")] > 1:  # GPU 0 of two machines
                name += f" of {item.source}"
        key = f"{meter.title}{SEPARATOR}{name}"
        readings[key] = readings.get(key, 0.0) + value / meter.divisor
    return readings


def _value_of_meter(meter: Meter, series: LiveSeries) -> float | None:
    if not meter.is_counter:
        return series.value
    if len(series.points) < 2:
        return None
    before_ns, before = series.points[-2]
    after_ns, after = series.points[-1]
    rise = after - before
    if after_ns <= before_ns or rise < 0:
        return None
    return rise * NS_PER_S / (after_ns - before_ns)
