"""The GPUs that a server used, as telemetry sampled them or as the server's log names them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llama_load.analysis.figures.measured_telemetry import (
    Measured,
    area,
    increase,
    mean,
    peak,
    ratio,
    total_if_known,
)
from llama_load.ground.units import MIB
from llama_load.run_folder.observed.gpu_identity import Place, gpus_in_use, vram_series
from llama_load.run_folder.observed.telemetry_names import LOG, UUID
from llama_load.run_folder.observed.telemetry_series import Series


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFigures:
    """One GPU in use. None where it does not say. Memory is that of the server (see
    `vram_series`)."""

    source: str
    gpu: str
    name: str | None = None
    uuid: str | None = None  # of its board
    vram_idle_mib: float | None = None
    vram_mean_mib: float | None = None
    vram_peak_mib: float | None = None
    vram_total_mib: float | None = None
    utilization: float | None = None  # 0 to 1, mean
    watts: float | None = None  # mean
    power_limit_watts: float | None = None
    joules: float | None = None
    temperature_peak_celsius: float | None = None
    sm_clock_mhz: float | None = None
    # part of the time with a reason to lower the clocks besides idling, 0 to 1
    throttled: float | None = None
    # part of the time in which programs that are no servers computed on it, 0 to 1; None where the
    # driver does not tell processes apart
    others: float | None = None


def _gpu(measured: Measured, place: Place) -> GpuFigures:
    source, gpu = place
    telemetry = measured.telemetry

    def of(
        function: Callable[[Series, Measured], float | None],
        metric: str,
        unit: float = 1.0,
    ) -> float | None:
        series = telemetry.find(metric, source, gpu=gpu)
        value = function(series[0], measured) if series else None
        return None if value is None else value / unit

    vram = vram_series(telemetry, source, gpu)
    energy = "gpu_energy_joules_total"
    joules = (
        of(increase, energy)
        if telemetry.find(energy, source, gpu=gpu)
        else of(area, "gpu_power_watts")
    )
    info = next(iter(telemetry.find("gpu_info", source, gpu=gpu)), None)
    return GpuFigures(
        source=source,
        gpu=gpu,
        name=None if info is None else info.labels.get("name"),
        uuid=None if info is None else info.labels.get(UUID),
        vram_idle_mib=None if vram is None else vram.at(measured.idle_ns) / MIB,
        vram_mean_mib=None if vram is None else ratio(mean(vram, measured), MIB),
        vram_peak_mib=None if vram is None else ratio(peak(vram, measured), MIB),
        vram_total_mib=of(peak, "gpu_memory_total_bytes", MIB),
        utilization=of(mean, "gpu_utilization_ratio"),
        watts=ratio(joules, measured.seconds),
        power_limit_watts=of(peak, "gpu_power_limit_watts"),
        joules=joules,
        temperature_peak_celsius=of(peak, "gpu_temperature_celsius"),
        sm_clock_mhz=of(mean, "gpu_sm_clock_hertz", 1e6),
        throttled=of(mean, "gpu_throttled"),
        others=of(mean, "gpu_others_ratio"),
    )


def gpus_of(measured: Measured) -> list[GpuFigures]:
    """The GPUs in use; where none can be sampled, the devices in the servers' logs."""
    sampled = [_gpu(measured, place) for place in gpus_in_use(measured.telemetry)]
    return sampled or [
        GpuFigures(
            source=LOG,
            gpu=device,
            vram_idle_mib=mib,
            vram_mean_mib=mib,
            vram_peak_mib=mib,
        )
        for device, mib in measured.logged_mib.items()
    ]


def boards_joules(gpus: Sequence[GpuFigures]) -> float | None:
    """Energy of these GPUs. The DCGM exporter repeats the power of a board for each of its MIG
    instances: it counts once."""
    boards: dict[str, list[float | None]] = {}
    for number, gpu in enumerate(gpus):
        boards.setdefault(gpu.uuid or str(number), []).append(gpu.joules)
    return total_if_known(
        [
            values[0] if len(set(values)) == 1 else total_if_known(values)
            for values in boards.values()
        ]
    )
