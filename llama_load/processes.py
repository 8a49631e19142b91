"""Processes of this machine: found by the ports they listen on, ended with their parent. (Not in `wire`, which imports gevent:
telemetry does without.)"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress

import psutil

# Child processes of a server are counted with it, up to this many, to keep a reading cheap.
MOST_PROCESSES = 64
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h


def listening(ports: Iterable[int]) -> list[psutil.Process]:
    """The processes that listen on these TCP ports. None that cannot be seen."""
    try:
        sockets = psutil.net_connections("tcp")
        pids = {one.pid for one in sockets if one.status == psutil.CONN_LISTEN and one.laddr.port in ports}
        return [psutil.Process(pid) for pid in sorted(pid for pid in pids if pid)]
    except (psutil.Error, OSError):
        return []


def with_descendants(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """The processes and their descendants, up to `MOST_PROCESSES`."""
    by_pid: dict[int, psutil.Process] = {}
    for process in processes:
        with suppress(psutil.Error):  # it has ended
            by_pid |= {member.pid: member for member in (process, *process.children(recursive=True))}
    return list(by_pid.values())[:MOST_PROCESSES]


def end_with_parent(by: signal.Signals, parent: int | None = None) -> None:
    """In a process that was just forked: the kernel sends it this signal when its parent ends. On Linux only. With `parent` it
    exits at once if that has ended already."""
    _prctl(PR_SET_PDEATHSIG, by)
    if parent is not None and sys.platform == "linux" and os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """From now on descendants of this process whose parents end become its children. On Linux only."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(option, value)
