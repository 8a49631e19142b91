"""What telemetry says of the measured windows: memory and power of the GPUs, energy and cost of a
token, the host, the server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from llama_load.analysis.figures.gpu_figures import GpuFigures, boards_joules, gpus_of
from llama_load.analysis.figures.measured_telemetry import (
    Measured,
    area,
    increase,
    mean,
    peak,
    ratio,
    total_if_known,
)
from llama_load.ground.units import MIB, quantity
from llama_load.run_folder.observed.gpu_identity import gpus_in_use
from llama_load.run_folder.observed.server_identity import series_of_servers
from llama_load.run_folder.observed.telemetry_names import HOST, OWN, UP
from llama_load.run_folder.observed.telemetry_series import Series
from llama_load.tables.numbers import decimals_of

# A source that did not answer for a shorter part of the measurement has no note.
LOST_RATIO = 0.02


@dataclass(frozen=True, slots=True)
class TelemetryFigure:
    """A figure: its key in summary.json, its line in the block, the decimals shown there, its
    definition."""

    key: str
    line: str
    decimals: int
    definition: str

    def shown(self, value: float) -> str:
        """A value as text; with more decimals where it would be 0."""
        return f"{value:.{decimals_of(value, self.decimals) if self.decimals else 0}f}"


# fmt: off
FIGURES = (
    TelemetryFigure("gpus", "GPUs in use", 0,
        "--gpus, else GPUs that the server uses: with memory of its processes, else in its CUDA_VISIBLE_DEVICES, else all that are seen; "
        "without any the devices in its log."),
    TelemetryFigure("output_tok_per_s_per_gpu", "Output tokens/s per GPU", 2,
        "Output tokens / length of the windows / GPUs in use."),
    TelemetryFigure("vram_idle_mib", "VRAM, idle after load (MiB)", 0,
        "Memory of the server on its GPUs before the first request (warm-up included), MiB: after load, idle. Sum over the GPUs."),
    TelemetryFigure("vram_mean_mib", "VRAM, mean (MiB)", 0,
        "Mean memory of the server on its GPUs, MiB: sum over the GPUs."),
    TelemetryFigure("vram_peak_mib", "VRAM, peak (MiB)", 0,
        "Largest memory of the server on each of its GPUs, MiB: sum of the GPUs' peaks, which may be at different instants."),
    TelemetryFigure("gpu_utilization", "GPU utilization (0 to 1)", 2,
        "Part of the time in which a GPU worked, 0 to 1, as the driver reports it: mean over the GPUs in use."),
    TelemetryFigure("gpu_watts", "GPU power (W)", 2,
        "Mean power of the GPUs in use, W: their energy / length of the windows."),
    TelemetryFigure("watts", "Power (W)", 2,
        "Mean power, W: energy / length of the windows."),
    TelemetryFigure("joules", "Energy (J)", 2,
        "Energy in the windows, J: of the meters (--power-command, here and on scraped machines) if there are any, else of the "
        "GPUs in use. Idle power and failed requests are included."),
    TelemetryFigure("joules_per_output_token", "Energy per output token (J)", 3,
        "Energy / output tokens, J. 300 W and 100 tok/s: 3."),
    TelemetryFigure("joules_per_request", "Energy per request (J)", 2,
        "Energy / successful requests, J."),
    TelemetryFigure("tokens_per_joule", "Output tokens per joule", 3,
        "Output tokens / energy, 1/J."),
    TelemetryFigure("cost", "Cost", 6,
        "Price of the windows' time: --price-per-hour x hours."),
    TelemetryFigure("cost_per_million_output_tokens", "Cost per million output tokens, all in", 4,
        "Cost / million output tokens, as if input tokens were free: the whole cost is in it."),
    TelemetryFigure("cost_per_million_input_tokens", "Cost per million input tokens, all in", 4,
        "Cost / million input tokens (cached ones included), as if output tokens were free: the whole cost is in it. Do not add "
        "it to that of output tokens."),
    TelemetryFigure("decode_cost_per_million_output_tokens", "Decode cost per million output tokens", 4,
        "Cost x (1 - prefill share) / million output tokens. Both together pay for the time exactly."),
    TelemetryFigure("prefill_cost_per_million_input_tokens", "Prefill cost per million input tokens", 4,
        "Cost x prefill share / million input tokens. Prefill share: Σ prefill time / Σ (prefill + decode time) of the requests, "
        "as the server reports them. n/a where it does not."),
    TelemetryFigure("host_cpu_cores", "Host CPU (cores)", 2,
        "Cores busy on the master's machine: CPU time of all processes / length of the windows."),
    TelemetryFigure("host_memory_peak_mib", "Host memory, peak (MiB)", 0,
        "Largest memory in use on the master's machine (total - available), MiB."),
    TelemetryFigure("host_received_bytes_per_s", "Network received (bytes/s)", 0,
        "Bytes that the network interfaces of the master's machine received a second, loopback not included."),
    TelemetryFigure("host_sent_bytes_per_s", "Network sent (bytes/s)", 0,
        "Bytes that they sent a second, loopback not included."),
    TelemetryFigure("server_cpu_cores", "Server CPU (cores)", 2,
        "Cores that the server's processes use, on the master's machine and on scraped ones, each process once: CPU time / length "
        "of the windows."),
    TelemetryFigure("server_memory_peak_mib", "Server memory, peak (MiB)", 0,
        "Largest resident memory of the server's processes, MiB: sum over machines. Pages that processes share count for each."),
    TelemetryFigure("telemetry_cpu_cores", "Telemetry's own CPU (cores)", 4,
        "Cores that the sampling itself uses: CPU time of its process / length of the windows."),
)
# fmt: on


@dataclass(frozen=True, slots=True)
class TelemetryFigures:
    """The figures of one set of windows. `values`: by the keys of `FIGURES`; `gpus`: those in
    use."""

    seconds: float
    values: dict[str, float | None] = field(default_factory=dict)
    gpus: Sequence[GpuFigures] = ()
    notes: Sequence[str] = ()


def telemetry_figures(measured: Measured) -> TelemetryFigures:
    """All figures of these windows."""
    gpus = gpus_of(measured)
    values = _values(measured, gpus)
    notes = [*measured.telemetry.notes, *_unknown_shares(measured), *_lost(measured)]
    return TelemetryFigures(
        measured.seconds,
        {figure.key: values[figure.key] for figure in FIGURES},
        gpus,
        notes,
    )


def _values(measured: Measured, gpus: Sequence[GpuFigures]) -> dict[str, float | None]:
    """The value of each of `FIGURES`."""
    seconds = measured.seconds
    output_tokens = measured.output_tokens
    share = measured.prefill_share
    of_boards = boards_joules(gpus)
    metered = _metered_joules(measured)
    number_of_gpus = float(measured.gpus or len(gpus)) or None
    gpu_seconds = None
    if number_of_gpus is not None:
        gpu_seconds = number_of_gpus * seconds
    joules = total_if_known(metered) if metered else of_boards
    cost = (
        None
        if measured.price_per_hour is None
        else measured.price_per_hour * seconds / 3600
    )

    def series_of(metric: str, source: str | None) -> list[Series]:
        """Of a source, or those of all servers."""
        if source is None:
            return series_of_servers(measured.telemetry, metric)
        return measured.telemetry.find(metric, source)

    def growth_per_s(metric: str, source: str | None = None) -> float | None:
        """Of a source, or the sum of all servers."""
        increases = [increase(series, measured) for series in series_of(metric, source)]
        return ratio(total_if_known(increases), seconds)

    def peak_mib(metric: str, source: str | None = None) -> float | None:
        peaks = [peak(series, measured) for series in series_of(metric, source)]
        return ratio(total_if_known(peaks), MIB)

    return {
        "gpus": number_of_gpus,
        "output_tok_per_s_per_gpu": ratio(output_tokens, gpu_seconds),
        "vram_idle_mib": total_if_known([gpu.vram_idle_mib for gpu in gpus]),
        "vram_mean_mib": total_if_known([gpu.vram_mean_mib for gpu in gpus]),
        "vram_peak_mib": total_if_known([gpu.vram_peak_mib for gpu in gpus]),
        "gpu_utilization": ratio(
            total_if_known([gpu.utilization for gpu in gpus]), len(gpus)
        ),
        "gpu_watts": ratio(of_boards, seconds),
        "watts": ratio(joules, seconds),
        "joules": joules,
        "joules_per_output_token": ratio(joules, output_tokens),
        "joules_per_request": ratio(joules, measured.requests),
        "tokens_per_joule": ratio(output_tokens, joules),
        "cost": cost,
        "cost_per_million_output_tokens": ratio(cost, output_tokens, 1e6),
        "cost_per_million_input_tokens": ratio(cost, measured.input_tokens, 1e6),
        "decode_cost_per_million_output_tokens": None
        if share is None
        else ratio(cost, output_tokens, 1e6 * (1 - share)),
        "prefill_cost_per_million_input_tokens": None
        if share is None
        else ratio(cost, measured.input_tokens, 1e6 * share),
        "host_cpu_cores": growth_per_s("host_cpu_seconds_total", HOST),
        "host_memory_peak_mib": peak_mib("host_memory_used_bytes", HOST),
        "host_received_bytes_per_s": growth_per_s(
            "host_network_received_bytes_total", HOST
        ),
        "host_sent_bytes_per_s": growth_per_s("host_network_sent_bytes_total", HOST),
        "server_cpu_cores": growth_per_s("server_cpu_seconds_total"),
        "server_memory_peak_mib": peak_mib("server_memory_bytes"),
        "telemetry_cpu_cores": growth_per_s("process_cpu_seconds_total", OWN),
    }


def _metered_joules(measured: Measured) -> list[float | None]:
    """Energy of each meter (--power-command, here and on scraped machines): its counter, or the
    area under its power."""
    counters = measured.telemetry.find("power_joules_total")
    powers = measured.telemetry.find("power_watts")
    counted = {counter.source for counter in counters}
    areas = [area(power, measured) for power in powers if power.source not in counted]
    return [increase(counter, measured) for counter in counters] + areas


def _unknown_shares(measured: Measured) -> list[str]:
    """A sentence for every source of GPUs that cannot tell the server's from others'."""
    telemetry = measured.telemetry
    if measured.logged_mib and not gpus_in_use(telemetry):
        return [
            "VRAM is from the server's log: its model, KV and compute buffers; those of RPC workers may be on a CPU"
        ]
    counted = Counter(
        source
        for source, _ in gpus_in_use(telemetry)
        if not telemetry.find("gpu_in_use", source)
    )
    return [
        f"{source}: which GPUs the server uses is not known: {quantity(count, 'GPU')} counted, with all their memory"
        + (
            " less what was taken before its start"
            if telemetry.find("gpu_memory_before_bytes", source)
            else ""
        )
        for source, count in counted.items()
    ]


def _lost(measured: Measured) -> list[str]:
    """A sentence for every source, and every GPU, that did not answer for a part of the windows or
    was not sampled to their end."""
    own = measured.telemetry.find(UP, OWN)
    if own and not all(map(own[0].covers, measured.windows)):
        return [
            "the process that samples telemetry did not run during the whole measurement"
        ]
    sentences = []
    for series in (*measured.telemetry.find(UP), *measured.telemetry.find("gpu_up")):
        name = (
            f"GPU {series.labels['gpu']} of {series.source}"
            if "gpu" in series.labels
            else series.source
        )
        answered = mean(series, measured)
        if answered is not None and answered < 1 - LOST_RATIO:
            sentences.append(
                f"{name} did not answer for {(1 - answered) * measured.seconds:.1f} of {measured.seconds:.1f} s"
            )
        elif answered is None and not all(map(series.covers, measured.windows)):
            sentences.append(f"{name} was not sampled during the whole measurement")
    return sentences
