"""A server under test that runs on this machine: its process, log and RPC workers."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from llama_load.run_folder.observed.server_description import (
    RpcWorker,
    ServerDescription,
)
from llama_load.servers.local_ports import is_here
from llama_load.servers.serving import registry
from llama_load.servers.serving.describe import described, read_log_file
from llama_load.servers.serving.last_words import ends_of, last_words
from llama_load.servers.serving.local_process import LocalProcess, listening_process
from llama_load.servers.serving.registry import Entry
from llama_load.servers.serving.rpc_traffic import Traffic, traffic_to
from llama_load.servers.target import Target

UNKNOWN_LOG = (
    "its log is not known: start it with llama-load serve, or with its output in a file"
)


@dataclass(frozen=True, slots=True)
class LocalServer:
    """What this machine knows of a server. `entry`: it was started by `llama-load serve`. `process`
    is None where it runs elsewhere or cannot be seen; `log` where it is not known."""

    target: Target
    process: LocalProcess | None = None
    entry: Entry | None = None
    log: Path | None = None
    # to its RPC workers before the run
    traffic: Mapping[str, Traffic] = field(default_factory=dict)

    @property
    def can_be_watched(self) -> bool:
        """Whether the end of its process is the end of the server."""
        return self.process is not None and not self.process.is_forwarder

    def has_ended(self) -> bool:
        """Whether it is gone, or its supervisor is stopping it."""
        if self.process is None or self.process.is_forwarder:
            return False
        is_stopped = self.entry is not None and bool(registry.ending_of(self.entry))
        return is_stopped or not self.process.is_alive()

    @property
    def may_sleep(self) -> bool:
        """Whether it may unload its model while it is idle, as far as can be known.

        Requests to its slots would keep it awake.
        """
        if not self.target.can_sleep:
            return False
        if not self.can_be_watched or self.process is None:
            return True
        return self.process.has_flag(self.target.kind.sleep_flag) is not False

    def is_explained(self) -> bool:
        """Whether its supervisor has noted why it ended; True if it has none."""
        return self.entry is None or bool(registry.ending_of(self.entry))

    def describe(self, now: Mapping[str, Traffic] | None = None) -> ServerDescription:
        """What is known; reads the log. `now`: the traffic to its RPC workers until now."""
        facts = self.target.facts
        base = ServerDescription(
            url=self.target.address.url,
            backend=self.target.backend,
            build=facts.build,
            model=self.target.model,
            model_bytes=facts.model_bytes,
            n_params=facts.n_params,
            quantization=facts.quantization,
            slots=self.target.slots,
            context_per_slot=self.target.ctx_per_slot,
        )
        if self.process is None:
            return base
        if self.process.is_forwarder:
            return replace(
                base,
                note=f"its port is held by {self.process.name}, which passes connections on",
            )

        server = self._with_log(base, self.process)
        threads, rss_mib = self.process.load()
        if rss_mib is not None:
            rss_mib = round(rss_mib, 1)
        rpc = [self._with_traffic(worker, now or {}) for worker in server.rpc]
        return replace(server, rpc=rpc, process_threads=threads, rss_mib=rss_mib)

    def _with_log(
        self, base: ServerDescription, process: LocalProcess
    ) -> ServerDescription:
        """What its command and its log say besides."""
        log = read_log_file(self.log) if self.log is not None else None
        note = UNKNOWN_LOG if self.log is None else None
        if self.entry is None:
            return replace(described(base, process.command, log, ()), note=note)
        server = described(base, self.entry.command, log, self.entry.rpc)
        return replace(server, note=note, start_s=self.entry.start_s, is_ours=True)

    def log_ends(self) -> tuple[str, str]:
        """The beginning and the end of its log; "" where it is not known, and no end of a short
        one."""
        if self.log is None:
            return "", ""
        return ends_of(self.log)

    def memory_lines(self) -> list[str]:
        """The lines of its log about memory."""
        if self.log is None:
            return []
        return read_log_file(self.log).memory_lines

    def last_words(self) -> str:
        """Why it ended: what its supervisor saw, else the end of its log."""
        seen = registry.ending_of(self.entry) if self.entry is not None else ""
        if seen:
            return seen
        words = last_words(self.log) if self.log is not None else ""
        if not words:
            return "the server's process ended"
        return f"the server's process ended; {words}"

    def _with_traffic(self, worker: RpcWorker, now: Mapping[str, Traffic]) -> RpcWorker:
        after = now.get(worker.address)
        before = self.traffic.get(worker.address)
        if after is None:
            return worker
        if before is None:
            return replace(worker, rtt_ms=after.rtt_ms)
        sent = after.sent_bytes - before.sent_bytes
        received = after.received_bytes - before.received_bytes
        return replace(
            worker,
            rtt_ms=after.rtt_ms,
            sent_bytes=max(0, sent),
            received_bytes=max(0, received),
        )


def with_traffic(server: LocalServer, description: ServerDescription) -> LocalServer:
    """The server, counting the traffic to its RPC workers from now on."""
    if not description.rpc:
        return server
    return replace(server, traffic=traffic_of([description]))


def traffic_of(descriptions: Sequence[ServerDescription]) -> dict[str, Traffic]:
    """The traffic to the RPC workers of these servers until now, by a worker's address."""
    addresses = [worker.address for server in descriptions for worker in server.rpc]
    return traffic_to(addresses)


def find_local_server(target: Target) -> LocalServer:
    """The server as it is now: after its end another process may listen on its port. (Blocks for
    some ms.)"""
    if not is_here(target.address):
        return LocalServer(target)
    entry = registry.find(target.address.port)
    process = listening_process(target.address)
    if entry is not None:
        return LocalServer(target, process, entry, Path(entry.log))
    if process is None or process.is_forwarder:
        return LocalServer(target, process)
    return LocalServer(target, process, log=_output_file(process.pid))


def _output_file(pid: int) -> Path | None:
    """The file that a process of ours writes its output to, if it is a file. (Linux.)"""
    for descriptor in (2, 1):
        path = Path(f"/proc/{pid}/fd/{descriptor}")
        try:
            status = path.stat()
            if stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid():
                return path.readlink()
        except OSError:
            continue
    return None
