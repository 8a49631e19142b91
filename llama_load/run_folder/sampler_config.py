"""What the sampler of telemetry is told, through a pipe."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from llama_load.outside.bound_headers import NO_HEADERS, BoundHeaders


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A page of a server: the name of its source, its URL, and the headers to ask with."""

    name: str
    url: str
    headers: BoundHeaders = NO_HEADERS


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerConfig:
    """What to sample, how often and where to write.

    It goes to the sampler through a pipe, because it may hold keys.

    `file`: of the samples, in the run folder; `ports`: of servers on this machine; `servers`:
    /metrics of the servers under test; `slots`: /slots of llama-servers; `exporters`: other pages
    of metrics; `power_command`: see `telemetry.power_command`; `gpu_memory_before`: bytes in use
    before the servers were started, by the GPU's UUID; `ca_file`, `insecure`: for https.
    """

    file: str
    interval_s: float = 1.0
    ports: list[int] = field(default_factory=list)
    servers: list[Endpoint] = field(default_factory=list)
    slots: list[Endpoint] = field(default_factory=list)
    exporters: list[Endpoint] = field(default_factory=list)
    gpu_memory_before: dict[str, int] = field(default_factory=dict)
    power_command: list[str] = field(default_factory=list)
    ca_file: str | None = None
    insecure: bool = False

    @classmethod
    def of(cls, config: dict[str, Any]) -> SamplerConfig:
        """The configuration from its JSON object."""
        # Not by msgspec: its import takes a third of the sampler's start.
        pages = {}
        for name in ("servers", "slots", "exporters"):
            pages[name] = [_endpoint_of(entry) for entry in config.get(name, ())]
        return cls(**config | pages)


def _endpoint_of(entry: dict[str, Any]) -> Endpoint:
    given = entry["headers"]
    fields = tuple((name, value) for name, value in given["fields"])
    headers = BoundHeaders(given["origin"], fields)
    return Endpoint(name=entry["name"], url=entry["url"], headers=headers)
