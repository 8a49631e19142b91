"""CPU use of the client on this machine, with its master, other workers and telemetry; and the
busiest other programs."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

import gevent
import psutil

from llama_load.ground.processes import listening, with_descendants

# Words of the command lines of our own processes: a parent with one of them belongs to the client.
OUR_WORDS = ("locust", "llama_load", "llama-load")
# The most other programs that are named, and the least share of the machine's CPU time for that.
MOST_NAMED = 3
LEAST_NAMED = 0.02


class ClientCpu:
    """Looks for the processes in a thread as soon as it is created, because that takes
    milliseconds.

    `master_port`: where the swarm's master listens, if that is on this machine."""

    def __init__(self, master_port: int | None = None) -> None:
        self._master_port = master_port
        self._ours: dict[int, psutil.Process] = {}
        # CPU seconds of every process of this machine, by pid
        self._before: dict[int, float] = {}
        self._since: dict[int, float] = {}
        # whether the processes were found: before, what they have used is not known
        self.is_known = False
        gevent.spawn(self._look)

    def start(self) -> None:
        """Count from now on."""
        self._since = {pid: cpu_s(process) for pid, process in self._ours.items()}

    def used_s(self, servers: Collection[int] = ()) -> float:
        """CPU seconds of the client's processes since `start`, without those of `servers`, which it
        may have started."""
        found = list(self._ours.values())
        with suppress(psutil.Error, OSError):
            # else no descriptor is left: those of the last look
            found = self._find()
        self._ours = {each.pid: each for each in found if each.pid not in servers}

        used_s = 0.0
        for pid, process in self._ours.items():
            used_s += max(0.0, cpu_s(process) - self._since.get(pid, 0.0))
        return used_s

    def busiest_others(self, total_s: float, servers: Collection[int]) -> list[str]:
        """The programs, neither ours nor the servers, that used most CPU time since this object was
        created: `yes 48%`. `total_s`: of all cores in that time."""
        known = {*self._ours, *servers}
        used: dict[str, float] = {}
        for pid, (name, seconds) in _of_all().items():
            if pid not in known:
                since_s = seconds - self._before.get(pid, 0.0)
                used[name] = used.get(name, 0.0) + since_s

        busiest = sorted(used, key=lambda name: (used[name], name), reverse=True)
        named = []
        for name in busiest[:MOST_NAMED]:
            share = used[name] / total_s
            if share >= LEAST_NAMED:
                named.append(f"{name} {share:.0%}")
        return named

    def _look(self) -> None:
        threads = gevent.get_hub().threadpool
        try:
            ours = threads.apply(self._find)
            all_before = threads.apply(_of_all)
        except (psutil.Error, OSError):  # no descriptor is left to look: not known
            return

        self._ours = {process.pid: process for process in ours}
        self._before = {pid: seconds for pid, (_, seconds) in all_before.items()}
        self.start()
        self.is_known = True

    def _find(self) -> list[psutil.Process]:
        """The client's processes: all below the first of its ancestors that are ours, and below the
        master."""
        roots = [_first_of_ours(psutil.Process())]
        if self._master_port is not None:
            roots += listening([self._master_port])
        return with_descendants(roots)


def cpu_s(process: psutil.Process) -> float:
    """CPU seconds of a process; 0 where it has ended, or no descriptor is left to look."""
    try:
        times = process.cpu_times()
    except (psutil.Error, OSError):
        return 0.0
    return float(times.user + times.system)


def _first_of_ours(process: psutil.Process) -> psutil.Process:
    """The highest ancestor in a row that is one of our programs: with --processes the master, else
    the process itself."""
    first = process
    try:
        for parent in process.parents():
            words = " ".join(parent.cmdline())
            if not any(word in words for word in OUR_WORDS):
                break
            first = parent
    except (psutil.Error, OSError):
        pass
    return first


def _of_all() -> dict[int, tuple[str, float]]:
    """Name and CPU seconds of every process that can be seen, by pid; fewer where no descriptor is
    left to look."""
    found = {}
    with suppress(OSError):
        for process in psutil.process_iter(["name", "cpu_times"]):
            times = process.info["cpu_times"]
            if times is not None:
                # with children that have ended: a compiler's, by the name of what started it
                of_children = getattr(times, "children_user", 0.0)
                of_children += getattr(times, "children_system", 0.0)
                found[process.pid] = (
                    process.info["name"] or "?",
                    float(times.user + times.system + of_children),
                )
    return found
