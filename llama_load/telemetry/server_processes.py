"""The processes of servers on this machine, found by the ports they listen on."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

import psutil

from llama_load.ground.processes import identity, listening, with_descendants
from llama_load.run_folder.observed.telemetry_names import PROCESS, SERVER
from llama_load.telemetry.source import Source, SourceError, Value

# How often a server's children are looked for again; vLLM starts them while it loads.
LOOK_EVERY_S = 5.0


class ServerProcesses(Source):
    """The servers' processes. Looked for again while there are none, and for new children.

    Sources that ask for `pids` run in threads of their own: whoever asks while another looks waits
    for what is found.
    """

    name = SERVER

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = set(ports)
        self.processes: list[psutil.Process] = []
        self._identities: list[str] = []  # of those that listen
        self._looked_s = -LOOK_EVERY_S
        self._lock = threading.Lock()
        self._cpu_s: dict[int, float] = {}
        self._total_cpu_s = 0.0

    @property
    def pids(self) -> list[int]:
        """Their process ids, as of the last look; looks first if there was none."""
        with self._lock:
            if self._looked_s < 0:
                self._look()
        return [process.pid for process in self.processes]

    def environment(self, name: str) -> str | None:
        """A variable in the environment of the first process that has it.

        None if there is none, or it may not be read.
        """
        for process in self.processes:
            with suppress(psutil.Error):
                value = process.environ().get(name)
                if value is not None:
                    return str(value)
        return None

    def _look(self) -> None:
        found = listening(self._ports)
        self.processes = with_descendants(found)
        self._identities = []
        for process in found:
            with suppress(psutil.Error):  # it has ended
                self._identities.append(identity(process))
        self._looked_s = time.monotonic()

    def sample(self) -> Iterator[Value]:
        """Number of processes, their resident memory, CPU seconds since the first sample, and which
        processes listen."""
        with self._lock:
            if time.monotonic() - self._looked_s >= LOOK_EVERY_S:
                self._look()

        alive = 0
        memory = 0
        for process in self.processes:
            try:
                with process.oneshot():
                    times = process.cpu_times()
                    resident = process.memory_info().rss
            except psutil.Error:  # it has ended
                continue
            alive += 1
            memory += resident
            cpu_s = times.user + times.system
            # A process that ends must not look like a counter that was reset: its time stays in the
            # sum.
            self._total_cpu_s += cpu_s - self._cpu_s.get(process.pid, cpu_s)
            self._cpu_s[process.pid] = cpu_s

        if not alive:
            raise SourceError(
                "the server's processes cannot be seen from here (another user, a container, or "
                "they have ended)"
            )
        yield Value("server_processes", float(alive))
        yield Value("server_memory_bytes", float(memory))
        yield Value("server_cpu_seconds_total", self._total_cpu_s)
        for name in self._identities:
            yield Value("server_info", 1.0, ((PROCESS, name),))
