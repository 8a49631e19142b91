"""Processes of this machine: found by the ports they listen on, ended with their parent. (Not in
`wire`, which imports gevent: telemetry does without.)"""

from __future__ import annotations

import hashlib
import os
import platform
import signal
import sys
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

import psutil

from llama_load.ground.listening_sockets import (
    established_connections,
    listening_sockets,
)

# Child processes of a server are counted with it, up to this many, to keep a reading cheap.
MOST_PROCESSES = 64
# Ticks from boot to its start: a field of /proc/PID/stat, counted after the name.
_STARTED = 19
# Of linux/prctl.h.
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def listening(ports: Collection[int]) -> list[psutil.Process]:
    """The processes that listen on these TCP ports. None that cannot be seen."""
    try:
        if sys.platform == "linux":
            sockets = listening_sockets(ports)
            pids = _holders({f"socket:[{each.inode}]" for each in sockets})
        else:
            connections = psutil.net_connections("tcp")
            pids = {
                each.pid
                for each in connections
                if each.pid
                and each.status == psutil.CONN_LISTEN
                and each.laddr.port in ports
            }
        return [psutil.Process(pid) for pid in sorted(pids)]
    except (psutil.Error, OSError):
        return []


def behind(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """The processes of this machine that these have connections to, and those behind them: an
    engine behind a gateway. None that cannot be seen."""
    found: dict[int, psutil.Process] = {}
    looked_at = {process.pid for process in processes}
    front = list(processes)
    while front and len(found) < MOST_PROCESSES:
        ports = set()
        for process in front:
            with suppress(psutil.Error, OSError):
                ports |= _local_peers(process)
        front = []
        for process in with_descendants(listening(ports)):
            if process.pid not in looked_at:
                looked_at.add(process.pid)
                found[process.pid] = process
                front.append(process)
    return list(found.values())


def _local_peers(process: psutil.Process) -> set[int]:
    """The ports of this machine that a process has connections to."""
    with suppress(OSError):  # other systems, and kernels that do not say
        inodes = _sockets_of(process.pid)
        return {
            each.peer_port
            for each in established_connections()
            if each.is_to_this_machine and f"socket:[{each.inode}]" in inodes
        }

    ports = set()
    for each in process.net_connections("tcp"):
        if each.raddr and _is_own(each.raddr.ip, each.laddr.ip):
            ports.add(each.raddr.port)
    return ports


def _is_own(address: str, own: str) -> bool:
    """Whether the other end of a connection is this machine, too."""
    plain = address.removeprefix("::ffff:")
    return address == own or plain.startswith("127.") or plain == "::1"


def listens_as_we_do(port: int) -> bool:
    """Whether every socket that listens on this port, at whatever address, is one of our own user.
    False where that cannot be seen (other than on Linux, or as the user that stands for all users
    whom a namespace does not know), and where none listens."""
    users = {each.user for each in listening_sockets((port,))}
    return users == {os.getuid()} and os.getuid() != _overflow_user()


def _overflow_user() -> int | None:
    with suppress(OSError, ValueError):
        return int(Path("/proc/sys/kernel/overflowuid").read_text("ascii"))
    return None


def _holders(links: set[str]) -> set[int]:
    """The processes with a descriptor that links to one of these."""
    pids = set()
    for pid in psutil.pids() if links else ():
        # it has ended, or is not ours to see
        with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as descriptors:
            if any(_link(each.path) in links for each in descriptors):
                pids.add(pid)
    return pids


def _sockets_of(pid: int) -> set[str]:
    """The links of its descriptors."""
    with os.scandir(f"/proc/{pid}/fd") as descriptors:
        return {_link(each.path) for each in descriptors}


def _link(path: str) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115 - a Path for each descriptor of the machine takes twice as long
    except OSError:  # just closed
        return ""


def with_descendants(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """The processes and their descendants, up to `MOST_PROCESSES`."""
    found: dict[int, psutil.Process] = {}
    for process in processes:
        try:
            found |= {
                each.pid: each for each in (process, *process.children(recursive=True))
            }
        except (psutil.Error, OSError):  # it has ended, or no descriptor is left
            continue
    return list(found.values())[:MOST_PROCESSES]


def identity(process: psutil.Process) -> str:
    """A name for this process that is the same from every namespace of its machine, and that no
    other process has: of the machine's boot and the process's start. Raises psutil.Error."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        stat = Path(f"/proc/{process.pid}/stat").read_text("utf-8", "replace")
        # Its name, in brackets, may have blanks and brackets.
        start = stat.rpartition(")")[2].split()[_STARTED]
    except (OSError, IndexError):
        boot = platform.node()
        start = str(process.create_time())
    return hashlib.sha256(f"{boot} {start}".encode()).hexdigest()[:16]


def end_with_parent(by: signal.Signals, parent: int | None = None) -> None:
    """In a process that was just forked: the kernel sends it this signal when its parent ends. On
    Linux only. With `parent` it exits at once if that has ended already."""
    _prctl(PR_SET_PDEATHSIG, by)
    if parent is not None and sys.platform == "linux" and os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """From now on descendants of this process whose parents end become its children. On Linux
    only."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(option, value)
