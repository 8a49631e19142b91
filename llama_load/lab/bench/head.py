"""The head of a bench: model, server, machine, in the words that people post."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from llama_load.analysis.results.results import Results
from llama_load.ground.units import quantity
from llama_load.outside.foreign_text import printable
from llama_load.run_folder.observed.server_description import ServerDescription
from llama_load.tables.numbers import parameters, size

MOST_PART = 80  # characters
UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class Head:
    """`model` with quantization and size; `server` with build, slots, device; `machine`."""

    model: str
    server: str
    machine: str


def head_of(results: Results) -> Head:
    """From a run of the bench. What is not known is left out."""
    manifest = results.run.manifest
    servers = manifest.servers
    server = servers[0] if servers else ServerDescription(url="")
    target = manifest.targets[0] if manifest.targets else {}
    return Head(
        model=_line_of(
            _model_parts(server, manifest.model, target.get("quantization"))
        ),
        server=_line_of(_server_parts(server, manifest.backend)),
        machine=_line_of(_machine_parts(results, server)),
    )


def _model_parts(
    server: ServerDescription, named: str | None, quantization: object
) -> Iterator[str]:
    name = server.model or named or ""
    yield re.split(r"[/\\]", name)[-1]  # a path says nothing to others
    yield server.quantization or str(quantization or "")
    if server.n_params:
        yield f"{parameters(server.n_params)} parameters"
    if server.model_bytes:
        yield size(server.model_bytes, 1)


def _server_parts(server: ServerDescription, backend: str) -> Iterator[str]:
    yield " ".join(filter(None, (server.backend or backend, server.build)))
    if server.slots:
        slots = quantity(server.slots, "slot")
        if server.context_per_slot:
            slots += f" of {server.context_per_slot} tokens"
        yield slots
    if server.devices:
        yield f"on {', '.join(server.devices)}"
    if server.kv_types:
        yield f"KV cache {server.kv_types}"


def _machine_parts(results: Results, server: ServerDescription) -> Iterator[str]:
    """GPUs with driver and power; without one the CPU, where the server is on this machine."""
    drivers = {}
    for series in results.run.telemetry.find("gpu_info"):
        drivers[series.source, series.labels.get("gpu", "")] = series.labels.get(
            "driver", ""
        )

    has_gpu = False
    for gpu in results.telemetry.gpus:
        if gpu.name is None:
            continue
        has_gpu = True
        parts = [gpu.name]
        if gpu.vram_total_mib:
            parts.append(f"{gpu.vram_total_mib / 1024:.0f} GiB")
        driver = drivers.get((gpu.source, gpu.gpu))
        if driver:
            parts.append(f"driver {driver}")
        if gpu.watts:
            parts.append(f"{gpu.watts:.0f} W")
        yield " ".join(parts)

    host = results.run.manifest.host
    is_here = server.rss_mib is not None or server.is_ours
    if not has_gpu and is_here and host.get("cpu"):
        yield f"{host['cpu']}, {quantity(int(host.get('cores') or 0), 'core')}"
        if server.threads:
            yield quantity(server.threads, "thread")


def _line_of(parts: Iterator[str]) -> str:
    """What is known, as one text for a line of Markdown."""
    known = [printable(part, MOST_PART) for part in parts if part]
    return " · ".join(known) or UNKNOWN
