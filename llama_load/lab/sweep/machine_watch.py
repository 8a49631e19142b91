"""What other programs use of this machine while a sweep starts a server or runs a cell.

A run judges this itself, but not what is before its first request (the start of a server), a run
too short for the kernel's ticks, the probes of a search together, or a run that failed.
"""

from __future__ import annotations

from contextlib import suppress

import psutil

from llama_load.loadgen.run.server_cpu import machine_cpu_s


class MachineWatch:
    """Looks at this machine from when it is made.

    The sweep, its servers with all that was started beside them, and Locust are its own programs.
    """

    def __init__(self) -> None:
        self._idle_s, self._total_s, _ = machine_cpu_s()
        self._own_s = own_cpu_s()

    def others(self) -> float:
        """The share of all cores' time that other programs have used since, 0 to 1."""
        idle_s, total_s, _ = machine_cpu_s()
        passed_s = total_s - self._total_s
        if passed_s <= 0:
            return 0.0
        busy_s = passed_s - (idle_s - self._idle_s)
        others_s = busy_s - (own_cpu_s() - self._own_s)
        return min(1.0, max(0.0, others_s / passed_s))


def own_cpu_s() -> float:
    """CPU time so far of this process and its descendants, with those that have ended."""
    own_s = 0.0
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        with suppress(psutil.Error):
            # user and system, and those of the children that it has waited for
            own_s += sum(process.cpu_times()[:4])
    return own_s
