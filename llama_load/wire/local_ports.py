"""Whether an address is of this machine, and which processes listen on its ports."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

import psutil

from llama_load.wire.address import Address

# Child processes of a server are counted with it, up to this many, to keep a reading cheap.
MOST_PROCESSES = 64


def is_here(address: Address) -> bool:
    """Whether the address is one of this machine."""
    found = {str(sockaddr[0]).partition("%")[0] for _, sockaddr in address.endpoints}
    if any(ipaddress.ip_address(each).is_loopback for each in found):
        return True
    own = {each.address.partition("%")[0] for interface in psutil.net_if_addrs().values() for each in interface}
    return not found.isdisjoint(own)


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
