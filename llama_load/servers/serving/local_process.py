"""The process of a server on this machine, found by the port that it listens on.

It may not be ours to see.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import psutil

from llama_load.ground.processes import listening, with_descendants
from llama_load.outside.command_secrets import redact_words
from llama_load.servers.address import Address
from llama_load.servers.local_ports import is_here
from llama_load.servers.serving import registry

# They pass connections on to a server that is somewhere else.
# fmt: off
FORWARDERS = {
    "docker-proxy", "rootlessport", "slirp4netns", "conmon", "pasta", "kubectl", "ssh", "socat",
    "nginx", "haproxy", "envoy", "traefik", "caddy",
}
# fmt: on


@dataclass(frozen=True, slots=True)
class LocalProcess:
    """A process that listens.

    `created_s`, Unix time, tells it from a later process with the same number.
    """

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
            is_same = (
                abs(process.create_time() - self.created_s) <= registry.SAME_TIME_S
            )
            return bool(is_same and process.status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return False
        # it is there, but not ours to see, or no descriptor is left to look
        except (psutil.Error, OSError):
            return True

    def has_flag(self, flag: str) -> bool | None:
        """Whether it, or a descendant such as a router's model, was started with this flag.

        None where a command cannot be seen.
        """
        try:
            commands = [
                each.cmdline() for each in with_descendants([psutil.Process(self.pid)])
            ]
        except (psutil.Error, OSError):
            return None
        if not all(commands):
            return None
        for command in commands:
            for word in command:
                if word == flag or word.startswith(f"{flag}="):
                    return True
        return False

    def load(self) -> tuple[int | None, float | None]:
        """Threads, and resident memory in MiB, of it and its descendants.

        None where they cannot be seen.
        """
        threads = 0
        rss = 0
        with suppress(psutil.NoSuchProcess):
            for each in with_descendants([psutil.Process(self.pid)]):
                with suppress(psutil.Error):
                    threads += each.num_threads()
                    rss += each.memory_info().rss
        return threads or None, rss / 2**20 if rss else None


def listening_process(address: Address) -> LocalProcess | None:
    """The process that listens on this port of this machine.

    None if the address is another machine's, or the process cannot be seen.
    """
    if not is_here(address):
        return None

    for process in listening((address.port,)):
        with suppress(psutil.Error):
            command: tuple[str, ...] = ()
            with suppress(psutil.AccessDenied):
                command = redact_words(tuple(process.cmdline()))
            return LocalProcess(
                process.pid, process.create_time(), process.name(), command
            )
    return None
