"""The process of a server on this machine, found by the port that it listens on. It may not be ours to see."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

import psutil

from llama_load.serving import registry
from llama_load.serving.commands import without_secrets
from llama_load.wire.address import Address

# Child processes of a server are counted with it, up to this many, to keep a reading cheap.
MOST_PROCESSES = 64
# They pass connections on to a server that is somewhere else.
FORWARDERS = {
    *("docker-proxy", "rootlessport", "slirp4netns", "conmon", "ssh", "socat", "nginx", "haproxy", "envoy", "traefik", "caddy"),
    *("kubectl", "pasta"),
}


@dataclass(frozen=True, slots=True)
class LocalProcess:
    """A process that listens, and when it was created (Unix time), which tells it from a later one with its number."""

    pid: int
    created_s: float
    name: str
    command: tuple[str, ...]  # without secrets; () where another user's cannot be seen

    @property
    def is_forwarder(self) -> bool:
        """Whether it only passes connections on: its end is not the server's, nor is its memory."""
        return self.name in FORWARDERS

    def is_alive(self) -> bool:
        """Whether it still runs."""
        try:
            process = psutil.Process(self.pid)
            is_same = abs(process.create_time() - self.created_s) <= registry.SAME_TIME_S
            return bool(is_same and process.status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return False
        except psutil.Error:  # it is there, but not ours to see
            return True

    def load(self) -> tuple[int | None, float | None]:
        """Threads, and resident memory in MiB, of it and its descendants; None where they cannot be seen."""
        threads, rss = 0, 0
        with suppress(psutil.Error):
            process = psutil.Process(self.pid)
            for each in (process, *process.children(recursive=True))[:MOST_PROCESSES]:
                with suppress(psutil.Error):
                    threads += each.num_threads()
                    rss += each.memory_info().rss
        return threads or None, rss / 2**20 if rss else None


def listening_process(address: Address) -> LocalProcess | None:
    """The process that listens on this port of this machine; None if it is another machine's, or cannot be seen."""
    if not is_here(address):
        return None
    for process in listening((address.port,)):
        with suppress(psutil.Error):
            command: tuple[str, ...] = ()
            with suppress(psutil.AccessDenied):
                command = without_secrets(tuple(process.cmdline()))
            return LocalProcess(process.pid, process.create_time(), process.name(), command)
    return None


def is_here(address: Address) -> bool:
    """Whether the address is one of this machine."""
    found = {str(sockaddr[0]).partition("%")[0] for _, sockaddr in address.endpoints}
    if any(ipaddress.ip_address(each).is_loopback for each in found):
        return True
    own = {each.address.partition("%")[0] for interface in psutil.net_if_addrs().values() for each in interface}
    return not found.isdisjoint(own)


def listening(ports: Iterable[int]) -> list[psutil.Process]:
    """The processes that listen on these TCP ports."""
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
        with suppress(psutil.Error):
            found |= {each.pid: each for each in (process, *process.children(recursive=True))}
    return list(found.values())[:MOST_PROCESSES]
