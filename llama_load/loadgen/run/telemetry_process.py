"""The sampler of a run, seen from the master: started before the first request, asked at the edges
of measurements, ended."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import gevent
import msgspec
from gevent import subprocess

from llama_load.ground.own_modules import module_command
from llama_load.loadgen.preflight.prepare import Prepared
from llama_load.loadgen.run.live_telemetry import LiveTelemetry
from llama_load.loadgen.run.watcher import Watcher
from llama_load.outside.bound_headers import bearer, bound
from llama_load.run_folder import StageRecord
from llama_load.run_folder.sampler_config import Endpoint, SamplerConfig
from llama_load.run_folder.telemetry_file import SAMPLES
from llama_load.servers.local_ports import is_here
from llama_load.servers.serving.registry import Entry
from llama_load.servers.target import Target

# How long the sampler may take to start, to answer, and to end.
READY_WITHIN_S = 5.0
SAMPLED_WITHIN_S = 1.5
ENDED_WITHIN_S = 3.0


# Started ahead of its run, which takes it.
_ahead: list[Any] = []


def start_sampler_ahead() -> None:
    """Start the process before it is known what it will sample: it takes 0.1 s to import what it
    needs. Without a run it ends with this process."""
    _ahead.append(_started())


def sampler() -> Any:
    """The process that was started ahead, if it lives, or a new one; None: it cannot be started."""
    ahead = _ahead.pop() if _ahead else None
    if ahead is None or ahead.poll() is not None:
        return _started()
    return ahead


def _started() -> Any:
    with suppress(OSError):
        # In a session of its own, so that Ctrl-C in the terminal does not reach it.
        return subprocess.Popen(
            module_command("llama_load.telemetry.sampler"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            close_fds=True,
        )
    return None


class TelemetryRun(Watcher):
    """The sampler's process, started at once. Whatever happens to it, the run goes on. `live` has
    its newest samples."""

    def __init__(self, prepared: Prepared) -> None:
        self._process: Any = None
        self.live = LiveTelemetry(prepared.writer.path / SAMPLES)
        if not prepared.options.telemetry.interval_s:
            return
        config = sampler_config(prepared)
        self._process = sampler()
        self._tell(msgspec.json.encode(config))

    def start(self) -> None:
        """Wait for the first samples."""
        self._hear(READY_WITHIN_S)

    def before_measuring(self) -> None:
        """Sample now."""
        self._tell(b"sample")
        self._hear(SAMPLED_WITHIN_S)

    def after_measuring(self, stages: Sequence[StageRecord]) -> None:
        """Sample now."""
        self.before_measuring()

    def stop(self) -> None:
        """End the sampler; its file is complete then."""
        process = self._process
        self._process = None
        if process is None:
            return
        with suppress(OSError):
            process.stdin.close()
        try:
            process.wait(timeout=ENDED_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
        process.stdout.close()

    def _tell(self, line: bytes) -> None:
        if self._process is not None:
            with suppress(OSError):
                self._process.stdin.write(line + b"\n")
                self._process.stdin.flush()

    def _hear(self, within_s: float) -> None:
        if self._process is not None:
            with gevent.Timeout(within_s, False), suppress(OSError):
                self._process.stdout.readline()


def sampler_config(prepared: Prepared) -> SamplerConfig:
    """What to sample in this run."""
    options = prepared.options.telemetry
    tls = prepared.options.tls
    token = bearer(options.scrape_token)

    ports = set()
    servers = []
    slots = []
    for target in prepared.targets:
        if is_here(target.address):
            ports.add(target.address.port)
        if target.has_counters:
            servers += _pages(target, "/metrics")

    entries = []
    for server in prepared.local_servers:
        if server.entry is not None:
            entries.append(server.entry)

        slots_path = server.target.kind.slots_path
        # watching must not keep a server awake
        if slots_path and not server.may_sleep:
            slots += _pages(server.target, slots_path)

    return SamplerConfig(
        file=str(prepared.writer.path / SAMPLES),
        interval_s=options.interval_s,
        ports=sorted(ports),
        servers=servers,
        slots=slots,
        exporters=[
            Endpoint(name=url, url=url, headers=bound(url, token))
            for url in options.scrape
        ],
        gpu_memory_before=_memory_before(entries),
        power_command=list(options.power_command),
        ca_file=None if tls.ca_file is None else str(tls.ca_file),
        insecure=tls.insecure,
    )


def _memory_before(entries: Sequence[Entry]) -> dict[str, int]:
    """Of several servers the least: the one that was started first found the GPU as it was."""
    before: dict[str, int] = {}
    for entry in entries:
        for uuid, taken in entry.gpu_memory_before.items():
            before[uuid] = min(taken, before.get(uuid, taken))
    return before


def _pages(target: Target, path: str) -> list[Endpoint]:
    return [
        Endpoint(name=url, url=url, headers=target.headers)
        for url in target.control_urls(path)
    ]
