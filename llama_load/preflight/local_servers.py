"""The servers under test that run on this machine: their processes, logs and RPC workers."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from llama_load.observed.server_description import RpcWorker, ServerDescription
from llama_load.run_folder import PreflightRow
from llama_load.serving import registry
from llama_load.serving.describe import described, read_log_file
from llama_load.serving.last_words import last_words
from llama_load.serving.local_process import LocalProcess, listening_process
from llama_load.serving.registry import Entry
from llama_load.serving.rpc_traffic import Traffic, traffic_to
from llama_load.targets.target import Target
from llama_load.wire.local_ports import is_here


@dataclass(frozen=True, slots=True)
class LocalServer:
    """What this machine knows of a server. `entry`: it was started by `llama-load serve`. `process` is None where it runs elsewhere
    or cannot be seen; `log` where it is not known."""

    target: Target
    process: LocalProcess | None = None
    entry: Entry | None = None
    log: Path | None = None
    traffic: Mapping[str, Traffic] = field(default_factory=dict)  # to its RPC workers before the run

    @property
    def can_be_watched(self) -> bool:
        """Whether the end of its process is the end of the server."""
        return self.process is not None and not self.process.is_forwarder

    def has_ended(self) -> bool:
        """Whether it is gone, or its supervisor is stopping it because something that belongs to it has ended."""
        if self.process is None or self.process.is_forwarder:
            return False
        return not self.process.is_alive() or (self.entry is not None and bool(registry.ending_of(self.entry)))

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
            return replace(base, note=f"its port is held by {self.process.name}, which passes connections on")
        command = self.entry.command if self.entry is not None else self.process.command
        log = None if self.log is None else read_log_file(self.log)
        server = described(base, command, log, self.entry.rpc if self.entry is not None else ())
        threads, rss_mib = self.process.load()
        return replace(
            server,
            rpc=[self._with_traffic(worker, now or {}) for worker in server.rpc],
            process_threads=threads,
            rss_mib=None if rss_mib is None else round(rss_mib, 1),
            start_s=None if self.entry is None else self.entry.start_s,
            is_ours=self.entry is not None,
            note=None
            if self.log is not None
            else "its log is not known: start it with llama-load serve, or with its output in a file",
        )

    def last_words(self) -> str:
        """Why it ended: what its supervisor saw, else the end of its log."""
        if self.entry is not None and (seen := registry.ending_of(self.entry)):
            return seen
        words = "" if self.log is None else last_words(self.log)
        return "the server's process ended" + (f"; {words}" if words else "")

    def _with_traffic(self, worker: RpcWorker, now: Mapping[str, Traffic]) -> RpcWorker:
        after, before = now.get(worker.address), self.traffic.get(worker.address)
        if after is None:
            return worker
        if before is None:
            return replace(worker, rtt_ms=after.rtt_ms)
        sent, received = after.sent_bytes - before.sent_bytes, after.received_bytes - before.received_bytes
        return replace(worker, rtt_ms=after.rtt_ms, sent_bytes=max(0, sent), received_bytes=max(0, received))


def with_traffic(server: LocalServer, description: ServerDescription) -> LocalServer:
    """The server, counting the traffic to its RPC workers from now on."""
    return replace(server, traffic=traffic_to(worker.address for worker in description.rpc)) if description.rpc else server


def server_rows(servers: Sequence[LocalServer], descriptions: Sequence[ServerDescription]) -> list[PreflightRow]:
    """Rows about processes and RPC workers."""
    rows = []
    for server, description in zip(servers, descriptions, strict=True):
        if server.can_be_watched and server.process is not None:
            how = "started by llama-load serve" if server.entry is not None else server.process.name
            others = " and no other is left" if len(servers) > 1 else ""
            text = f"{how}, process {server.process.pid}: the run ends if it does{others}"
            rows.append(PreflightRow("process", text if server.log is not None else f"{text}; its log is not known"))
        if description.context_shift:
            text = "--context-shift: an answer that fills its slot goes on without the oldest tokens; texts and speeds change"
            rows.append(PreflightRow("shift", text, "note"))
        if unused := description.rpc_unused:
            text = f"{', '.join(unused)} of {len(description.rpc)} hold no part of the model; check --rpc (commas, -ngl)"
            rows.append(PreflightRow("RPC workers", text, "warning"))
        elif description.rpc:
            is_known = all(worker.model_mib for worker in description.rpc)
            names = ", ".join(worker.address for worker in description.rpc)
            text = (
                f"all {len(description.rpc)} used: {names}" if is_known else f"{names}; whether they are used is not in a known log"
            )
            rows.append(PreflightRow("RPC workers", text, "ok" if is_known else "note"))
    return rows


def find_local_server(target: Target) -> LocalServer:
    """The server as it is now: after its end another process may listen on its port. (Blocks for some ms.)"""
    if not is_here(target.address):
        return LocalServer(target)
    entry = registry.find(target.address.port)
    process = listening_process(target.address)
    if entry is not None:
        return LocalServer(target, process, entry, Path(entry.log))
    return LocalServer(target, process, None, None if process is None or process.is_forwarder else _output_file(process.pid))


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
