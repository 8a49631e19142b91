"""Detects lost workers: at once if the process has ended on this machine, after a second if a
remote one has closed its connections (as the kernel does for a process that was killed) and makes
no new ones, after `LOST_AFTER_S` if it is only silent.

By default Locust regards a worker as lost when three heartbeats (one per second) are missing. But a
worker that was suspended, starved of CPU or cut off by the network may come back, and its requests
are still valid: its leases wait for it and go to others only after `LOST_AFTER_S`. Locust counts
heartbeats, not time, so a master that was suspended itself loses no workers.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gevent
import psutil

# Longer than a suspended machine's network needs to come back. (Tests lower it with this variable.)
LOST_AFTER_S = int(os.environ.get("LLAMA_LOAD_LOST_AFTER_S", "30"))
LOOK_EVERY_S = 0.25
# A worker whose connections were reset is back within 0.2 s.
CLOSED_FOR_S = 1.0
# Locust checks heartbeats once a second and regards a worker with a count below 0 as lost.
NO_HEARTBEAT = -1


def introduction() -> dict[str, Any]:
    """Identifies this process, so that a peer on the same machine can see when it ends."""
    return {"pid": os.getpid(), "machine": _machine()}


def _machine() -> str | None:
    """An id shared by processes on the same machine in the same PID namespace; None if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return None


def introduced(introduction: dict[str, Any]) -> psutil.Process | None:
    """The process of an introduction; None if it runs on another machine or has ended already (then
    heartbeats will be missing)."""
    machine = introduction.get("machine")
    pid = introduction.get("pid")
    if machine is None or machine != _machine() or not isinstance(pid, int):
        return None
    try:
        return psutil.Process(pid)
    except (psutil.Error, ValueError, OSError):
        return None


class Presence:
    """Watches the worker processes on the master's machine, during and between runs."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._processes: dict[str, psutil.Process] = {}
        gevent.spawn(self._watch)

    def introduce(self, client_id: str, data: dict[str, Any]) -> None:
        """Watch the worker with this `introduction`."""
        process = introduced(data)
        if process is not None:
            self._processes[client_id] = process

    def _watch(self) -> None:
        while True:
            gevent.sleep(LOOK_EVERY_S)
            ended = [
                client_id
                for client_id, process in self._processes.items()
                if is_over(process)
            ]
            for client_id in ended:
                del self._processes[client_id]
                node = self._runner.clients.get(client_id)
                if node is not None:  # else it has quit regularly
                    node.heartbeat = NO_HEARTBEAT
                    node.llama_load_ended = True
            server = self._runner.server
            for client_id, node in list(self._runner.clients.items()):
                # The last worker may come back, as after a restart of a proxy: without it Locust
                # would end the test.
                node.llama_load_closed = (
                    server.closed_for_s(client_id) > CLOSED_FOR_S
                    and self._runner.worker_count > 1
                )
                if node.llama_load_closed:
                    node.heartbeat = NO_HEARTBEAT


def has_ended(node: Any) -> bool:
    """Whether this worker's process (`node` is Locust's entry) is known to have ended, so that it
    cannot come back."""
    return getattr(node, "llama_load_ended", False)


def has_closed(node: Any) -> bool:
    """Whether this worker has closed its connections and made no new ones."""
    return getattr(node, "llama_load_closed", False)


def is_over(process: psutil.Process) -> bool:
    """Whether it has ended, including zombies."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
    except (psutil.Error, OSError):  # not ours to see, or no descriptor is left to look
        return False
