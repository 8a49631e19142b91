"""CPU use of the server under test if it runs on this machine. Its processes are found by the ports
they listen on."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress

import gevent
import psutil

from llama_load.ground.processes import behind, listening, with_descendants
from llama_load.loadgen.run.thread_waits import Account, Waits, account_of, between
from llama_load.servers.address import Address
from llama_load.servers.local_ports import is_here

_last_times = psutil.cpu_times()


class ServerCpu:
    """Looks for the servers' processes in a thread as soon as it is created. Processes that cannot
    be seen (another machine, another user, a container) are unknown, never an error."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        self._processes: list[psutil.Process] = []
        self._since: dict[int, float] = {}
        self._total_since_s = 0.0
        self._threads_since: Account = {}
        self._began_s = 0.0
        ports = {address.port for address in addresses if is_here(address)}
        # a server is on this machine, whether or not its processes can be seen
        self.is_here = bool(ports)
        if ports:
            gevent.spawn(self._look, ports)

    def start(self) -> None:
        """Count from now on, or from the time the processes are found."""
        self._since = self._cpu_s()
        _, self._total_since_s, _ = machine_cpu_s()
        self._threads_since = account_of(self.pids)
        self._began_s = time.monotonic()

    @property
    def pids(self) -> set[int]:
        """The servers' processes."""
        return {process.pid for process in self._processes}

    def share(self) -> float | None:
        """CPU time of the servers' processes since `start`, 0 to 1 of all cores; None if there are
        none on this machine."""
        used_s = self._used_s()
        _, now_s, _ = machine_cpu_s()
        total_s = now_s - self._total_since_s
        if not used_s or total_s <= 0:
            return None
        return min(1.0, sum(used_s) / total_s)

    def used_s(self) -> float:
        """CPU seconds of the servers' processes since `start`; 0 if there are none on this
        machine."""
        return sum(self._used_s())

    def waits(self) -> Waits | None:
        """What the threads of the servers' processes did since `start`.

        None if none is known; see `thread_waits`.
        """
        return between(self._threads_since, account_of(self.pids))

    @property
    def seen_s(self) -> float:
        """Seconds of the clock since `start`."""
        return time.monotonic() - self._began_s

    @property
    def machine_s(self) -> float:
        """CPU seconds of all cores since `start`."""
        return machine_cpu_s()[1] - self._total_since_s

    def _used_s(self) -> list[float]:
        used_s = []
        for pid, cpu_s in self._cpu_s().items():
            if pid in self._since:
                used_s.append(cpu_s - self._since[pid])
        return used_s

    def _look(self, ports: set[int]) -> None:
        self._processes = gevent.get_hub().threadpool.apply(
            lambda: with_descendants(listening(ports))
        )
        self.start()

    def look_behind(self) -> None:
        """Look for engines behind a gateway, which has connections to them once it is used."""
        if self._processes:
            gevent.spawn(self._add_those_behind)

    def _add_those_behind(self) -> None:
        front = list(self._processes)
        found = gevent.get_hub().threadpool.apply(lambda: behind(front))
        known = {*self.pids, os.getpid()}
        added = [process for process in found if process.pid not in known]
        for process in added:
            with suppress(psutil.Error, OSError):
                self._since[process.pid] = _cpu_s(process)
        threads = account_of(process.pid for process in added)
        self._threads_since = {**self._threads_since, **threads}
        self._processes += added

    def _cpu_s(self) -> dict[int, float]:
        seconds = {}
        for process in self._processes:
            with suppress(
                psutil.Error, OSError
            ):  # it has ended, or no descriptor is left
                seconds[process.pid] = _cpu_s(process)
        return seconds


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def machine_cpu_s() -> tuple[float, float, float]:
    """CPU seconds of all cores since boot: (idle, total, stolen by the hypervisor). Where no
    descriptor is left to read them: as they were read last."""
    global _last_times  # noqa: PLW0603 - one machine
    with suppress(OSError):
        _last_times = psutil.cpu_times()
    times = _last_times
    # contained in user and nice
    guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    return (
        times.idle + getattr(times, "iowait", 0.0),
        sum(times) - guests,
        getattr(times, "steal", 0.0),
    )
