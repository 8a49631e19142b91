"""The sources of this machine and of a configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial

from llama_load.outside.plain_http import tls_context
from llama_load.run_folder.sampler_config import SamplerConfig
from llama_load.telemetry.amd import AmdGpus
from llama_load.telemetry.host_source import Host, Own
from llama_load.telemetry.nvml import NvidiaGpus, has_nvml
from llama_load.telemetry.power_command import PowerCommand
from llama_load.telemetry.prometheus import OF_SERVERS, Scrape
from llama_load.telemetry.server_processes import ServerProcesses
from llama_load.telemetry.slots import Slots
from llama_load.telemetry.source import Source, SourceError


def machine_sources(
    servers: ServerProcesses | None,
    power_command: Sequence[str],
    note: Callable[[str], None],
    memory_before: Mapping[str, int] | None = None,
) -> list[Source]:
    """What this machine has: host, GPUs, a meter, the processes of `servers`.

    `note` gets sentences about what it cannot sample.
    """
    sources: list[Source] = [Host(), Own()]
    if has_nvml():
        try:
            sources.append(NvidiaGpus(servers, memory_before))
        except (SourceError, ImportError) as error:
            note(f"gpus: {error}")

    amd = AmdGpus()
    if amd.cards:
        sources.append(amd)
    if power_command:
        sources.append(PowerCommand(power_command))
    if servers is not None:
        sources.append(servers)
    return sources


def all_sources(config: SamplerConfig, note: Callable[[str], None]) -> list[Source]:
    """Those of this machine, the servers' processes and pages, and the pages of other exporters."""
    servers = ServerProcesses(config.ports) if config.ports else None
    tls = cache(partial(tls_context, config.ca_file, insecure=config.insecure))
    sources = machine_sources(
        servers, config.power_command, note, config.gpu_memory_before
    )
    for server in config.servers:
        sources.append(Scrape(server, tls, only=OF_SERVERS))
    for slots in config.slots:
        sources.append(Slots(slots, tls))
    for exporter in config.exporters:
        sources.append(Scrape(exporter, tls))
    return sources
