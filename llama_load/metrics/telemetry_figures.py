"""What telemetry says of the measured windows: memory and power of the GPUs, energy and cost of a token, the host, the server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from llama_load.metrics.gpu_identity import Place, gpus_in_use, vram_series
from llama_load.observed.telemetry_names import HOST, LOG, OWN, UP, UUID
from llama_load.observed.telemetry_series import Series, Telemetry
from llama_load.observed.window import Window
from llama_load.tables.numbers import decimals_of
from llama_load.units import quantity

MIB = 1 << 20
# A source that did not answer for a shorter part of the measurement has no note.
LOST_RATIO = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was measured, and when: the input of every figure here.

    `windows`: of the measurement, or of each stage; warm-ups are outside. `idle_ns`: the start of the run's first request, warm-up
    included. Tokens and requests are those of the windows; None where unknown. `prefill_share`: the part of the servers' time
    for these requests that was prefill, 0 to 1. `logged_mib`: buffers by device in the servers' logs, but those in host memory.
    """

    telemetry: Telemetry
    windows: Sequence[Window]
    idle_ns: int
    input_tokens: float | None = None
    output_tokens: float | None = None
    requests: float | None = None
    prefill_share: float | None = None
    price_per_hour: float | None = None
    logged_mib: Mapping[str, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Length of the windows, s."""
        return sum(window.seconds for window in self.windows)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFigures:
    """One GPU in use. None where it does not say.

    `uuid`: of its board; `vram_*_mib`: memory of the server (see `vram_series`); `utilization`: 0 to 1, mean; `watts`: mean;
    `throttled`: the part of the time with a reason to lower the clocks besides idling, 0 to 1.
    """

    source: str
    gpu: str
    name: str | None = None
    uuid: str | None = None
    vram_idle_mib: float | None = None
    vram_mean_mib: float | None = None
    vram_peak_mib: float | None = None
    vram_total_mib: float | None = None
    utilization: float | None = None
    watts: float | None = None
    power_limit_watts: float | None = None
    joules: float | None = None
    temperature_peak_celsius: float | None = None
    sm_clock_mhz: float | None = None
    throttled: float | None = None


@dataclass(frozen=True, slots=True)
class TelemetryFigures:
    """The figures of one set of windows. `values`: by the keys of `FIGURES`; `gpus`: those in use."""

    seconds: float
    values: dict[str, float | None] = field(default_factory=dict)
    gpus: Sequence[GpuFigures] = ()
    notes: Sequence[str] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing was sampled."""
        return not self.gpus and all(value is None for value in self.values.values())


def telemetry_figures(measured: Measured) -> TelemetryFigures:
    """All figures of these windows."""
    return TelemetryFigures(
        measured.seconds,
        {figure.key: figure.function(measured) for figure in FIGURES},
        _gpus(measured),
        [*measured.telemetry.notes, *_unknown_shares(measured), *_lost(measured)],
    )


# ---------------------------------------------------------------------- over all windows


def mean(series: Series, measured: Measured) -> float | None:
    """Mean of a gauge over all windows, weighted by their lengths."""
    means = [(value, window.seconds) for window in measured.windows if (value := series.mean(window)) is not None]
    seconds = sum(length for _, length in means)
    if seconds <= 0:
        return means[0][0] if means else None
    return sum(value * length for value, length in means) / seconds


def peak(series: Series, measured: Measured) -> float | None:
    """Largest value of a gauge in all windows."""
    return max((value for window in measured.windows if (value := series.peak(window)) is not None), default=None)


def increase(series: Series, measured: Measured) -> float | None:
    """Growth of a counter within all windows, interpolated at their edges. None where it was not sampled in one of them."""
    return _sum([series.increase(window) for window in measured.windows])


def _area(series: Series, measured: Measured) -> float | None:
    """Area under a gauge in all windows, unit x s."""
    return _sum([series.integral(window) for window in measured.windows])


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _ratio(above: float | None, below: float | None, factor: float = 1.0) -> float | None:
    return None if above is None or not below else above * factor / below


# ---------------------------------------------------------------------- GPUs


def gpu_joules(measured: Measured, source: str, gpu: str) -> float | None:
    """Energy of a GPU: increase of its energy counter; without one the area under its power."""
    counters = measured.telemetry.find("gpu_energy_joules_total", source, gpu=gpu)
    if counters:
        return increase(counters[0], measured)
    power = measured.telemetry.find("gpu_power_watts", source, gpu=gpu)
    return _area(power[0], measured) if power else None


def _gpu(measured: Measured, place: Place) -> GpuFigures:
    source, gpu = place
    telemetry = measured.telemetry

    def of(function: Callable[[Series, Measured], float | None], metric: str, unit: float = 1.0) -> float | None:
        series = telemetry.find(metric, source, gpu=gpu)
        value = function(series[0], measured) if series else None
        return None if value is None else value / unit

    vram = vram_series(telemetry, source, gpu)
    joules = gpu_joules(measured, source, gpu)
    info = next(iter(telemetry.find("gpu_info", source, gpu=gpu)), None)
    return GpuFigures(
        source=source,
        gpu=gpu,
        name=None if info is None else info.labels.get("name"),
        uuid=None if info is None else info.labels.get(UUID),
        vram_idle_mib=None if vram is None else vram.at(measured.idle_ns) / MIB,
        vram_mean_mib=None if vram is None else _ratio(mean(vram, measured), MIB),
        vram_peak_mib=None if vram is None else _ratio(peak(vram, measured), MIB),
        vram_total_mib=of(peak, "gpu_memory_total_bytes", MIB),
        utilization=of(mean, "gpu_utilization_ratio"),
        watts=_ratio(joules, measured.seconds),
        power_limit_watts=of(peak, "gpu_power_limit_watts"),
        joules=joules,
        temperature_peak_celsius=of(peak, "gpu_temperature_celsius"),
        sm_clock_mhz=of(mean, "gpu_sm_clock_hertz", 1e6),
        throttled=of(mean, "gpu_throttled"),
    )


def _gpus(measured: Measured) -> list[GpuFigures]:
    """The GPUs in use; where none can be sampled, the devices in the servers' logs."""
    sampled = [_gpu(measured, place) for place in gpus_in_use(measured.telemetry)]
    return sampled or [
        GpuFigures(source=LOG, gpu=device, vram_idle_mib=mib, vram_mean_mib=mib, vram_peak_mib=mib)
        for device, mib in measured.logged_mib.items()
    ]


def gpus(measured: Measured) -> float | None:
    """GPUs that the server uses: with memory of its processes, else in its CUDA_VISIBLE_DEVICES, else all that are seen; without
    any the devices in its log."""
    return float(len(_gpus(measured))) or None


def vram_idle_mib(measured: Measured) -> float | None:
    """Memory of the server on its GPUs before the first request (warm-up included), MiB: after load, idle. Sum over the GPUs."""
    return _sum([gpu.vram_idle_mib for gpu in _gpus(measured)])


def vram_peak_mib(measured: Measured) -> float | None:
    """Largest memory of the server on each of its GPUs, MiB: sum of the GPUs' peaks, which may be at different instants."""
    return _sum([gpu.vram_peak_mib for gpu in _gpus(measured)])


def vram_mean_mib(measured: Measured) -> float | None:
    """Mean memory of the server on its GPUs, MiB: sum over the GPUs."""
    return _sum([gpu.vram_mean_mib for gpu in _gpus(measured)])


def gpu_utilization(measured: Measured) -> float | None:
    """Part of the time in which a GPU worked, 0 to 1, as the driver reports it: mean over the GPUs in use."""
    known = [gpu.utilization for gpu in _gpus(measured)]
    return _ratio(_sum(known), len(known))


def gpu_watts(measured: Measured) -> float | None:
    """Mean power of the GPUs in use, W: their energy / length of the windows."""
    return _ratio(_boards_joules(measured), measured.seconds)


def _boards_joules(measured: Measured) -> float | None:
    """Energy of the GPUs in use. The DCGM exporter repeats the power of a board for each of its MIG instances: it counts once."""
    boards: dict[str, list[float | None]] = {}
    for number, gpu in enumerate(_gpus(measured)):
        boards.setdefault(gpu.uuid or str(number), []).append(gpu.joules)
    return _sum([values[0] if len(set(values)) == 1 else _sum(values) for values in boards.values()])


# ---------------------------------------------------------------------- energy and cost


def joules(measured: Measured) -> float | None:
    """Energy in the windows, J: of the meters (--power-command, here and on scraped machines) if there are any, else of the GPUs in
    use. Idle power and failed requests are included."""
    counters, powers = measured.telemetry.find("power_joules_total"), measured.telemetry.find("power_watts")
    counted = {counter.source for counter in counters}
    metered = [increase(counter, measured) for counter in counters]
    metered += [_area(power, measured) for power in powers if power.source not in counted]
    return _sum(metered) if metered else _boards_joules(measured)


def watts(measured: Measured) -> float | None:
    """Mean power, W: energy / length of the windows."""
    return _ratio(joules(measured), measured.seconds)


def joules_per_output_token(measured: Measured) -> float | None:
    """Energy / output tokens, J. 300 W and 100 tok/s: 3."""
    return _ratio(joules(measured), measured.output_tokens)


def joules_per_request(measured: Measured) -> float | None:
    """Energy / successful requests, J."""
    return _ratio(joules(measured), measured.requests)


def tokens_per_joule(measured: Measured) -> float | None:
    """Output tokens / energy, 1/J."""
    return _ratio(measured.output_tokens, joules(measured))


def cost(measured: Measured) -> float | None:
    """Price of the windows' time: --price-per-hour x hours."""
    return None if measured.price_per_hour is None else measured.price_per_hour * measured.seconds / 3600


def cost_per_million_input_tokens(measured: Measured) -> float | None:
    """Cost / million input tokens (cached ones included), as if output tokens were free: the whole cost is in it. Do not add it
    to that of output tokens."""
    return _ratio(cost(measured), measured.input_tokens, 1e6)


def cost_per_million_output_tokens(measured: Measured) -> float | None:
    """Cost / million output tokens, as if input tokens were free: the whole cost is in it."""
    return _ratio(cost(measured), measured.output_tokens, 1e6)


def prefill_cost_per_million_input_tokens(measured: Measured) -> float | None:
    """Cost x prefill share / million input tokens. Prefill share: Σ prefill time / Σ (prefill + decode time) of the requests, as
    the server reports them. n/a where it does not."""
    share = measured.prefill_share
    return None if share is None else _ratio(cost(measured), measured.input_tokens, 1e6 * share)


def decode_cost_per_million_output_tokens(measured: Measured) -> float | None:
    """Cost x (1 - prefill share) / million output tokens. Both together pay for the time exactly."""
    share = measured.prefill_share
    return None if share is None else _ratio(cost(measured), measured.output_tokens, 1e6 * (1 - share))


# ---------------------------------------------------------------------- host and server


def _growth_per_s(measured: Measured, metric: str, source: str | None = None) -> float | None:
    """Of a source, or the sum of all."""
    return _ratio(_sum([increase(series, measured) for series in measured.telemetry.find(metric, source)]), measured.seconds)


def _peak_mib(measured: Measured, metric: str, source: str | None = None) -> float | None:
    return _ratio(_sum([peak(series, measured) for series in measured.telemetry.find(metric, source)]), MIB)


def host_cpu_cores(measured: Measured) -> float | None:
    """Cores busy on the master's machine: CPU time of all processes / length of the windows."""
    return _growth_per_s(measured, "host_cpu_seconds_total", HOST)


def host_memory_peak_mib(measured: Measured) -> float | None:
    """Largest memory in use on the master's machine (total - available), MiB."""
    return _peak_mib(measured, "host_memory_used_bytes", HOST)


def host_received_bytes_per_s(measured: Measured) -> float | None:
    """Bytes that the network interfaces of the master's machine received a second, loopback not included."""
    return _growth_per_s(measured, "host_network_received_bytes_total", HOST)


def host_sent_bytes_per_s(measured: Measured) -> float | None:
    """Bytes that they sent a second, loopback not included."""
    return _growth_per_s(measured, "host_network_sent_bytes_total", HOST)


def server_cpu_cores(measured: Measured) -> float | None:
    """Cores that the server's processes use, on the master's machine and on scraped ones: CPU time / length of the windows."""
    return _growth_per_s(measured, "server_cpu_seconds_total")


def server_memory_peak_mib(measured: Measured) -> float | None:
    """Largest resident memory of the server's processes, MiB: sum over machines. Pages that processes share count for each."""
    return _peak_mib(measured, "server_memory_bytes")


def telemetry_cpu_cores(measured: Measured) -> float | None:
    """Cores that the sampling itself uses: CPU time of its process / length of the windows."""
    return _growth_per_s(measured, "process_cpu_seconds_total", OWN)


@dataclass(frozen=True, slots=True)
class TelemetryFigure:
    """A figure: its key in summary.json, its line in the block, its function. `decimals`: shown in the block."""

    key: str
    line: str
    function: Callable[[Measured], float | None]
    decimals: int = 2

    def shown(self, value: float) -> str:
        """A value as text; with more decimals where it would be 0."""
        return f"{value:.{decimals_of(value, self.decimals) if self.decimals else 0}f}"


FIGURES = tuple(
    TelemetryFigure(function.__name__, line, function, decimals)
    for line, function, decimals in (
        ("GPUs in use", gpus, 0),
        ("VRAM, idle after load (MiB)", vram_idle_mib, 0),
        ("VRAM, mean (MiB)", vram_mean_mib, 0),
        ("VRAM, peak (MiB)", vram_peak_mib, 0),
        ("GPU utilization (0 to 1)", gpu_utilization, 2),
        ("GPU power (W)", gpu_watts, 2),
        ("Power (W)", watts, 2),
        ("Energy (J)", joules, 2),
        ("Energy per output token (J)", joules_per_output_token, 3),
        ("Energy per request (J)", joules_per_request, 2),
        ("Output tokens per joule", tokens_per_joule, 3),
        ("Cost", cost, 6),
        ("Cost per million output tokens, all in", cost_per_million_output_tokens, 4),
        ("Cost per million input tokens, all in", cost_per_million_input_tokens, 4),
        ("Decode cost per million output tokens", decode_cost_per_million_output_tokens, 4),
        ("Prefill cost per million input tokens", prefill_cost_per_million_input_tokens, 4),
        ("Host CPU (cores)", host_cpu_cores, 2),
        ("Host memory, peak (MiB)", host_memory_peak_mib, 0),
        ("Network received (bytes/s)", host_received_bytes_per_s, 0),
        ("Network sent (bytes/s)", host_sent_bytes_per_s, 0),
        ("Server CPU (cores)", server_cpu_cores, 2),
        ("Server memory, peak (MiB)", server_memory_peak_mib, 0),
        ("Telemetry's own CPU (cores)", telemetry_cpu_cores, 4),
    )
)


def _unknown_shares(measured: Measured) -> list[str]:
    """A sentence for every source of GPUs that cannot tell the server's from others'."""
    telemetry = measured.telemetry
    if measured.logged_mib and not gpus_in_use(telemetry):
        return ["VRAM is from the server's log: its model, KV and compute buffers; those of RPC workers may be on a CPU"]
    counted = Counter(source for source, _ in gpus_in_use(telemetry) if not telemetry.find("gpu_in_use", source))
    return [
        f"{source}: which GPUs the server uses is not known: {quantity(count, 'GPU')} counted, with all their memory"
        + (" less what was taken before its start" if telemetry.find("gpu_memory_before_bytes", source) else "")
        for source, count in counted.items()
    ]


def _lost(measured: Measured) -> list[str]:
    """A sentence for every source, and every GPU, that did not answer for a part of the windows or was not sampled to their end."""
    own = measured.telemetry.find(UP, OWN)
    if own and not all(map(own[0].covers, measured.windows)):
        return ["the process that samples telemetry did not run during the whole measurement"]
    sentences = []
    for series in (*measured.telemetry.find(UP), *measured.telemetry.find("gpu_up")):
        name = f"GPU {series.labels['gpu']} of {series.source}" if "gpu" in series.labels else series.source
        answered = mean(series, measured)
        if answered is not None and answered < 1 - LOST_RATIO:
            sentences.append(f"{name} did not answer for {(1 - answered) * measured.seconds:.1f} of {measured.seconds:.1f} s")
        elif answered is None and not all(map(series.covers, measured.windows)):
            sentences.append(f"{name} was not sampled during the whole measurement")
    return sentences
