"""Processes of this machine, found by the ports they listen on. (Not in `wire`, which imports gevent: telemetry does without.)"""

from __future__ import annotations

from collections.abc import Iterable

import psutil

# Child processes of a server are counted with it, up to this many, to keep a reading cheap.
MOST_PROCESSES = 64


def listening(ports: Iterable[int]) -> list[psutil.Process]:
    """The processes that listen on these TCP ports. None that cannot be seen."""
    try:
        sockets = psutil.net_connections("tcp")
        pids = {each.pid for each in sockets if each.status == psutil.CONN_LISTEN and each.laddr.port in ports}
        return [psutil.Process(pid) for pid in sorted(pid for pid in pids if pid)]
    except (psutil.Error, OSError):
        return []


def with_descendants(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """The processes and their descendants, up to `MOST_PROCESSES`."""
    found: dict[int, psutil.Process] = {}
    for process in processes:
        try:
            found |= {each.pid: each for each in (process, *process.children(recursive=True))}
        except psutil.Error:  # it has ended
            continue
    return list(found.values())[:MOST_PROCESSES]
