"""Hosts on one machine: network namespaces on a bridge. Needs root, iproute2 and iptables."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import environment


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@dataclass
class Network:
    """Namespaces on one bridge; host n has the address 10.77.0.n."""

    name: str

    def start(
        self, host: int, command: list[str], folder: Path, log: str
    ) -> subprocess.Popen[bytes]:
        with (folder / log).open("wb") as out:
            full = ["ip", "netns", "exec", f"{self.name}-{host}", *command]
            return subprocess.Popen(
                full, stdout=out, stderr=out, cwd=folder, env=environment()
            )

    def cut(self, host: int) -> None:
        ip(
            "netns",
            "exec",
            f"{self.name}-hub",
            "ip",
            "link",
            "set",
            f"to{host}",
            "down",
        )

    def lose(self, host: int, ratio: float) -> None:
        """Drop this many of the packets that reach this host."""
        by_chance = ["-m", "statistic", "--mode", "random", "--probability", str(ratio)]
        self.rule(host, "-A", "INPUT", "-i", "eth", *by_chance, "-j", "DROP")

    def rule(self, host: int, *arguments: str) -> None:
        """A rule of this host's firewall."""
        ip("netns", "exec", f"{self.name}-{host}", "iptables", *arguments)

    def drop_rules(self, host: int) -> None:
        """All packets come through again."""
        self.rule(host, "-F")

    def heal(self, host: int) -> None:
        ip("netns", "exec", f"{self.name}-hub", "ip", "link", "set", f"to{host}", "up")


@contextmanager
def hosts_on_a_bridge(count: int) -> Iterator[Network]:
    """Hosts 1 to `count`. Skips the test where the machine does not allow it."""
    if None in (shutil.which("ip"), shutil.which("iptables")) or os.geteuid() != 0:
        pytest.skip("network namespaces need root, iproute2 and iptables")
    name = f"ll{os.getpid()}"
    hub = f"{name}-hub"
    try:
        ip("netns", "add", hub)
        ip("-n", hub, "link", "add", "name", "bridge0", "type", "bridge")
        ip("-n", hub, "link", "set", "bridge0", "up")
        for host in range(1, count + 1):
            ip("netns", "add", f"{name}-{host}")
            peer = ["peer", "name", "eth", "netns", f"{name}-{host}"]
            ip("-n", hub, "link", "add", f"to{host}", "type", "veth", *peer)
            ip("-n", hub, "link", "set", f"to{host}", "master", "bridge0", "up")
            ip(
                "-n",
                f"{name}-{host}",
                "addr",
                "add",
                f"10.77.0.{host}/24",
                "dev",
                "eth",
            )
            for device in ("eth", "lo"):
                ip("-n", f"{name}-{host}", "link", "set", device, "up")
        yield Network(name)
    finally:
        for host in ("hub", *range(1, count + 1)):
            subprocess.run(
                ["ip", "netns", "del", f"{name}-{host}"],
                check=False,
                capture_output=True,
            )
