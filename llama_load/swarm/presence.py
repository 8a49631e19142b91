"""Which workers are still there: a process that has ended is noticed at once, one that is only silent gets its time.

Locust takes a worker for lost when three of its heartbeats (one a second) are missing. A worker that was stopped for some
seconds, starved by other processes or cut off by the network comes back, and what it was doing is still right: its leases
wait for it. Only after `LOST_AFTER_S` of silence are they given to others. Locust counts heartbeats, not time, so a master
that stood still itself does not take its workers for silent.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gevent
import psutil

# Longer than a suspended machine's network needs to come back, shorter than anybody waits for a worker that never will.
# (The tests lower it by this variable.)
LOST_AFTER_S = int(os.environ.get("LLAMA_LOAD_LOST_AFTER_S", "30"))
LOOK_EVERY_S = 0.5
# Locust looks at its workers' heartbeats once a second, and takes one with less than none for lost.
NO_HEARTBEAT = -1


def introduction() -> dict[str, Any]:
    """What a worker says of its process, so that a master on the same machine can see when that ends."""
    return {"pid": os.getpid(), "machine": _machine()}


def _machine() -> str | None:
    """What two processes have in common that see each other under the same process ids; None where that cannot be known."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return None


def introduced(introduction: dict[str, Any]) -> psutil.Process | None:
    """The process that introduces itself; None if it runs on another machine. One that has ended meanwhile is None, too: what
    is missing then is its heartbeats."""
    machine, pid = introduction.get("machine"), introduction.get("pid")
    if machine is None or machine != _machine() or not isinstance(pid, int):
        return None
    try:
        return psutil.Process(pid)
    except (psutil.Error, ValueError):
        return None


class Presence:
    """Watches the worker processes on the master's machine, during and between runs."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._processes: dict[str, psutil.Process] = {}
        gevent.spawn(self._watch)

    def introduce(self, client_id: str, data: dict[str, Any]) -> None:
        """A worker has said hello, with its `introduction`."""
        process = introduced(data)
        if process is not None:
            self._processes[client_id] = process

    def _watch(self) -> None:
        while True:
            gevent.sleep(LOOK_EVERY_S)
            ended = [client_id for client_id, process in self._processes.items() if is_over(process)]
            for client_id in ended:
                del self._processes[client_id]
                node = self._runner.clients.get(client_id)
                if node is not None:  # else it has said goodbye
                    node.heartbeat, node.llama_load_ended = NO_HEARTBEAT, True


def has_ended(node: Any) -> bool:
    """Whether the process of this worker (Locust's entry of it) is known to have ended, so that it never comes back."""
    return getattr(node, "llama_load_ended", False)


def is_over(process: psutil.Process) -> bool:
    """Whether it has ended, a child that nobody has waited for included."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False
