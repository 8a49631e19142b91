"""Which GPUs are one: NVML, NVIDIA's DCGM exporter and our own exporter on another port may all
report the same board.

A board is known by its UUID. Several sources of one board are one GPU; the MIG instances of a board
are separate GPUs, unless a source reports the whole board. Without a UUID nothing is known to be
the same, and every source's GPUs count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from llama_load.run_folder.observed.telemetry_names import GPU, MIG, UUID
from llama_load.run_folder.observed.telemetry_series import Series, Telemetry


class Place(NamedTuple):
    """Where the series of a GPU are: their source, and their label `gpu`."""

    source: str
    gpu: str


def distinct(infos: Iterable[tuple[str, Mapping[str, str]]]) -> list[Place]:
    """Each GPU once, by the source that is named first. `infos`: source and labels of each
    `gpu_info`."""
    known = {
        Place(source, labels[GPU]): labels for source, labels in infos if GPU in labels
    }
    whole = {
        labels[UUID]
        for labels in known.values()
        if labels.get(UUID) and not labels.get(MIG)
    }
    places: dict[tuple[str, ...], Place] = {}
    for place, labels in known.items():
        uuid = labels.get(UUID, "")
        instance = labels.get(MIG, "")
        if not (instance and uuid in whole):
            places.setdefault((uuid, instance) if uuid else place, place)
    return list(places.values())


def gpus_in_use(telemetry: Telemetry) -> list[Place]:
    """The GPUs that the server uses: those with memory of its processes, else those in its
    CUDA_VISIBLE_DEVICES; all GPUs of a source that knows neither, but for boards that another
    source knows about."""
    infos = [
        (series.source, series.labels)
        for series in telemetry.find("gpu_info")
        if GPU in series.labels
    ]
    knowing = {series.source for series in telemetry.find("gpu_in_use")}
    used = {
        Place(series.source, series.labels.get(GPU, ""))
        for series in telemetry.find("gpu_in_use")
        if series.values.max() > 0
    }
    decided = {
        labels[UUID]
        for source, labels in infos
        if source in knowing and labels.get(UUID)
    }
    return distinct(
        (source, labels)
        for source, labels in infos
        if (
            Place(source, labels[GPU]) in used
            if source in knowing
            else labels.get(UUID) not in decided
        )
    )


def vram_series(telemetry: Telemetry, source: str, gpu: str) -> Series | None:
    """Bytes of a GPU that the server uses: of its processes; where the driver does not say, all
    that is in use, less what was taken before the server was started."""
    own = telemetry.find("gpu_memory_server_bytes", source, gpu=gpu)
    if own:
        return own[0]
    used = telemetry.find("gpu_memory_used_bytes", source, gpu=gpu)
    before = telemetry.find("gpu_memory_before_bytes", source, gpu=gpu)
    if not used or not before:
        return used[0] if used else None
    values = (used[0].values - before[0].values[0]).clip(0)
    return Series(source, used[0].metric, used[0].labels, used[0].t_ns, values)
