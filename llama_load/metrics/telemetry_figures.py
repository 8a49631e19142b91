"""What telemetry says of the measured windows: memory and power of the GPUs, energy and cost of a token, the host, the server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from llama_load.metrics.gpu_figures import GpuFigures, boards_joules, gpus_of
from llama_load.metrics.gpu_identity import gpus_in_use
from llama_load.metrics.measured_telemetry import Measured, area, increase, mean, peak, ratio, total
from llama_load.observed.telemetry_names import HOST, OWN, UP
from llama_load.tables.numbers import decimals_of
from llama_load.units import MIB, quantity

# A source that did not answer for a shorter part of the measurement has no note.
LOST_RATIO = 0.02


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
        gpus_of(measured),
        [*measured.telemetry.notes, *_unknown_shares(measured), *_lost(measured)],
    )


# ---------------------------------------------------------------------- GPUs


def gpus(measured: Measured) -> float | None:
    """GPUs that the server uses: with memory of its processes, else in its CUDA_VISIBLE_DEVICES, else all that are seen; without
    any the devices in its log."""
    return float(len(gpus_of(measured))) or None


def vram_idle_mib(measured: Measured) -> float | None:
    """Memory of the server on its GPUs before the first request (warm-up included), MiB: after load, idle. Sum over the GPUs."""
    return total([gpu.vram_idle_mib for gpu in gpus_of(measured)])


def vram_peak_mib(measured: Measured) -> float | None:
    """Largest memory of the server on each of its GPUs, MiB: sum of the GPUs' peaks, which may be at different instants."""
    return total([gpu.vram_peak_mib for gpu in gpus_of(measured)])


def vram_mean_mib(measured: Measured) -> float | None:
    """Mean memory of the server on its GPUs, MiB: sum over the GPUs."""
    return total([gpu.vram_mean_mib for gpu in gpus_of(measured)])


def gpu_utilization(measured: Measured) -> float | None:
    """Part of the time in which a GPU worked, 0 to 1, as the driver reports it: mean over the GPUs in use."""
    known = [gpu.utilization for gpu in gpus_of(measured)]
    return ratio(total(known), len(known))


def gpu_watts(measured: Measured) -> float | None:
    """Mean power of the GPUs in use, W: their energy / length of the windows."""
    return ratio(boards_joules(measured), measured.seconds)


# ---------------------------------------------------------------------- energy and cost


def joules(measured: Measured) -> float | None:
    """Energy in the windows, J: of the meters (--power-command, here and on scraped machines) if there are any, else of the GPUs in
    use. Idle power and failed requests are included."""
    counters, powers = measured.telemetry.find("power_joules_total"), measured.telemetry.find("power_watts")
    counted = {counter.source for counter in counters}
    metered = [increase(counter, measured) for counter in counters]
    metered += [area(power, measured) for power in powers if power.source not in counted]
    return total(metered) if metered else boards_joules(measured)


def watts(measured: Measured) -> float | None:
    """Mean power, W: energy / length of the windows."""
    return ratio(joules(measured), measured.seconds)


def joules_per_output_token(measured: Measured) -> float | None:
    """Energy / output tokens, J. 300 W and 100 tok/s: 3."""
    return ratio(joules(measured), measured.output_tokens)


def joules_per_request(measured: Measured) -> float | None:
    """Energy / successful requests, J."""
    return ratio(joules(measured), measured.requests)


def tokens_per_joule(measured: Measured) -> float | None:
    """Output tokens / energy, 1/J."""
    return ratio(measured.output_tokens, joules(measured))


def cost(measured: Measured) -> float | None:
    """Price of the windows' time: --price-per-hour x hours."""
    return None if measured.price_per_hour is None else measured.price_per_hour * measured.seconds / 3600


def cost_per_million_input_tokens(measured: Measured) -> float | None:
    """Cost / million input tokens (cached ones included), as if output tokens were free: the whole cost is in it. Do not add it
    to that of output tokens."""
    return ratio(cost(measured), measured.input_tokens, 1e6)


def cost_per_million_output_tokens(measured: Measured) -> float | None:
    """Cost / million output tokens, as if input tokens were free: the whole cost is in it."""
    return ratio(cost(measured), measured.output_tokens, 1e6)


def prefill_cost_per_million_input_tokens(measured: Measured) -> float | None:
    """Cost x prefill share / million input tokens. Prefill share: Σ prefill time / Σ (prefill + decode time) of the requests, as
    the server reports them. n/a where it does not."""
    share = measured.prefill_share
    return None if share is None else ratio(cost(measured), measured.input_tokens, 1e6 * share)


def decode_cost_per_million_output_tokens(measured: Measured) -> float | None:
    """Cost x (1 - prefill share) / million output tokens. Both together pay for the time exactly."""
    share = measured.prefill_share
    return None if share is None else ratio(cost(measured), measured.output_tokens, 1e6 * (1 - share))


# ---------------------------------------------------------------------- host and server


def _growth_per_s(measured: Measured, metric: str, source: str | None = None) -> float | None:
    """Of a source, or the sum of all."""
    return ratio(total([increase(series, measured) for series in measured.telemetry.find(metric, source)]), measured.seconds)


def _peak_mib(measured: Measured, metric: str, source: str | None = None) -> float | None:
    return ratio(total([peak(series, measured) for series in measured.telemetry.find(metric, source)]), MIB)


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
