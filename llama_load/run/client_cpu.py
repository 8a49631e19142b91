"""CPU use of the client on this machine, with its master, other workers and telemetry; and the busiest other programs."""

from __future__ import annotations

from collections.abc import Collection

import gevent
import psutil

from llama_load.processes import listening, with_descendants

# Words of the command lines of our own processes: a parent with one of them belongs to the client.
OUR_WORDS = ("locust", "llama_load", "llama-load")
# The most other programs that are named, and the least share of the machine's CPU time for that.
MOST_NAMED, LEAST_NAMED = 2, 0.02


class ClientCpu:
    """Looks for the processes in a thread as soon as it is created, because that takes milliseconds.

    `master_port`: where the swarm's master listens, if that is on this machine."""

    def __init__(self, master_port: int | None = None) -> None:
        self._master_port = master_port
        self._ours: dict[int, psutil.Process] = {}
        self._before: dict[int, float] = {}  # CPU seconds of every process of this machine, by pid
        self._since: dict[int, float] = {}
        gevent.spawn(self._look)

    def start(self) -> None:
        """Count from now on."""
        self._since = {pid: cpu_s(process) for pid, process in self._ours.items()}

    def used_s(self, servers: Collection[int] = ()) -> float:
        """CPU seconds of the client's processes since `start`, without those of `servers`, which it may have started."""
        processes = {each.pid: each for each in self._find()}
        own = {pid: process for pid, process in processes.items() if pid not in servers}
        self._ours = own
        return sum(max(0.0, cpu_s(process) - self._since.get(pid, 0.0)) for pid, process in own.items())

    def busiest_others(self, total_s: float, servers: Collection[int]) -> list[str]:
        """The programs, neither ours nor the servers, that used most CPU time since this object was created: `yes 48%`. `total_s`:
        of all cores in that time."""
        known = {*self._ours, *servers}
        used: dict[str, float] = {}
        for pid, (name, seconds) in _of_all().items():
            if pid not in known and pid in self._before:
                used[name] = used.get(name, 0.0) + seconds - self._before[pid]
            elif pid not in known:
                used[name] = used.get(name, 0.0) + seconds
        shares = sorted(((seconds / total_s, name) for name, seconds in used.items()), reverse=True)
        return [f"{name} {share:.0%}" for share, name in shares[:MOST_NAMED] if share >= LEAST_NAMED]

    def _look(self) -> None:
        threads = gevent.get_hub().threadpool
        self._ours = {each.pid: each for each in threads.apply(self._find)}
        self._before = {pid: seconds for pid, (_, seconds) in threads.apply(_of_all).items()}
        self.start()

    def _find(self) -> list[psutil.Process]:
        """The client's processes: all below the first of its ancestors that are ours, and below the master."""
        roots = [_first_of_ours(psutil.Process())]
        if self._master_port is not None:
            roots += listening([self._master_port])
        return with_descendants(roots)


def cpu_s(process: psutil.Process) -> float:
    """CPU seconds of a process; 0 where it has ended."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


def _first_of_ours(process: psutil.Process) -> psutil.Process:
    """The highest ancestor in a row that is one of our programs: with --processes the master, else the process itself."""
    first = process
    try:
        for parent in process.parents():
            words = " ".join(parent.cmdline())
            if not any(word in words for word in OUR_WORDS):
                break
            first = parent
    except psutil.Error:
        pass
    return first


def _of_all() -> dict[int, tuple[str, float]]:
    """Name and CPU seconds of every process that can be seen, by pid."""
    found = {}
    for process in psutil.process_iter(["name", "cpu_times"]):
        times = process.info["cpu_times"]
        if times is not None:
            found[process.pid] = (process.info["name"] or "?", float(times.user + times.system))
    return found
