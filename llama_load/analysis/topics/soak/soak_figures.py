"""The drift of a run of an hour or more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llama_load.analysis.checks.same import observed
from llama_load.analysis.topics.soak.drift import Soak, soak
from llama_load.analysis.topics.topic import TopicInput
from llama_load.run_folder.observed.gpu_identity import vram_series
from llama_load.run_folder.observed.server_identity import series_of_servers
from llama_load.run_folder.observed.telemetry_series import Series, Telemetry


@dataclass(frozen=True, slots=True)
class SoakFigures:
    """A long run: its drifts, how many requests failed, and from where its hours are counted."""

    soak: Soak
    failed: int
    origin_ns: int


def soak_figures(given: TopicInput) -> SoakFigures | None:
    """The drift of a run of an hour or more under constant load; None for others."""
    evidence = given.constant
    if not evidence.is_steady or not len(evidence.records):
        return None

    memory = dict(_memory(given.run.telemetry))
    long = soak(observed(evidence), memory)
    if long is None:
        return None

    origin_ns = int(given.measured.instants("started_mono_ns").min())

    return SoakFigures(long, given.total.failed, origin_ns)


def _memory(telemetry: Telemetry) -> Sequence[tuple[str, Series]]:
    """The memory of the servers' processes and of the GPUs, by the names to show."""
    named = []
    servers = series_of_servers(telemetry, "server_memory_bytes")
    for server in servers:
        name = f"server memory {server.source}" if len(servers) > 1 else "server memory"
        named.append((name, server))

    for gpu_memory in telemetry.find("gpu_memory_used_bytes"):
        gpu = gpu_memory.labels.get("gpu", "")
        vram = vram_series(telemetry, gpu_memory.source, gpu)
        if vram is not None:
            named.append((f"VRAM {gpu_memory.source} {gpu}".rstrip(), vram))

    return named
