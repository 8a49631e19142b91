"""Several hosts on one machine: a master, three workers and a real llama-server, each in a network namespace of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import SHAREGPT, Finished, environment
from tests.swarms import wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@dataclass
class Network:
    """Namespaces on one bridge; host n has the address 10.77.0.n."""

    name: str

    def start(self, host: int, command: list[str], folder: Path, log: str) -> subprocess.Popen[bytes]:
        with (folder / log).open("wb") as out:
            full = ["ip", "netns", "exec", f"{self.name}-{host}", *command]
            return subprocess.Popen(full, stdout=out, stderr=out, cwd=folder, env=environment())

    def cut(self, host: int) -> None:
        ip("netns", "exec", f"{self.name}-hub", "ip", "link", "set", f"to{host}", "down")

    def heal(self, host: int) -> None:
        ip("netns", "exec", f"{self.name}-hub", "ip", "link", "set", f"to{host}", "up")


@pytest.fixture
def network() -> Iterator[Network]:
    """Five hosts: 1 the master, 2 to 4 workers, 5 the server."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root and Debian's iproute2")
    name = f"ll{os.getpid()}"
    hub = f"{name}-hub"
    try:
        ip("netns", "add", hub)
        ip("-n", hub, "link", "add", "name", "bridge0", "type", "bridge")
        ip("-n", hub, "link", "set", "bridge0", "up")
        for host in range(1, 6):
            ip("netns", "add", f"{name}-{host}")
            ip("-n", hub, "link", "add", f"to{host}", "type", "veth", "peer", "name", "eth", "netns", f"{name}-{host}")
            ip("-n", hub, "link", "set", f"to{host}", "master", "bridge0", "up")
            ip("-n", f"{name}-{host}", "addr", "add", f"10.77.0.{host}/24", "dev", "eth")
            for device in ("eth", "lo"):
                ip("-n", f"{name}-{host}", "link", "set", device, "up")
        yield Network(name)
    finally:
        for host in ("hub", *range(1, 6)):
            subprocess.run(["ip", "netns", "del", f"{name}-{host}"], check=False, capture_output=True)


@pytest.mark.parametrize("cut_s", [0, 10])
def test_three_workers_and_a_real_server_over_a_network(network: Network, tiny_model: Path, tmp_path: Path, cut_s: int) -> None:
    """All prompts once; also when a worker's link is cut for 10 s in the middle: Locust calls it missing and takes it back."""
    serve = [sys.executable, "-m", "llama_load.cli", "serve", "--model", str(tiny_model), "--host", "10.77.0.5", "--port", "8080"]
    locust = [sys.executable, "-m", "locust", "-f", str(SHAREGPT), "--loglevel", "WARNING"]
    load = [
        "--host",
        "http://10.77.0.5:8080",
        "-u",
        "9",
        "--num-prompts",
        "600" if cut_s else "90",
        "--max-tokens",
        "60",
        "--ignore-eos",
    ]
    load += ["--run-dir", str(tmp_path / "run"), "--cache-prompt", "on"]
    processes = [network.start(5, serve, tmp_path, "server.log")]
    try:
        probe = ["ip", "netns", "exec", f"{network.name}-5", "curl", "-sf", "http://10.77.0.5:8080/health"]
        wait_until(lambda: subprocess.run(probe, check=False, capture_output=True).returncode == 0, 60)
        master = network.start(1, [*locust, "--master", "--headless", "--expect-workers", "3", *load], tmp_path, "master.log")
        processes.append(master)
        for host in (2, 3, 4):
            folder = tmp_path / str(host)
            folder.mkdir()
            processes.append(network.start(host, [*locust, "--worker", "--master-host", "10.77.0.1"], folder, "log"))
        if cut_s:
            journal = tmp_path / "run" / "requests.arrows"
            wait_until(lambda: journal.exists() and journal.stat().st_size > 20_000, 60)
            network.cut(3)
            time.sleep(cut_s)
            network.heal(3)
        code = master.wait(150)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    log = (tmp_path / "master.log").read_text()
    done = Finished(code, log, log, tmp_path / "run")
    records = done.records.measured()
    ended = records.where(~records.equals("status", "cancelled"))
    indices = ended.table["prompt_index"].to_pylist()
    assert len(indices) == len(set(indices)), log
    total = 600 if cut_s else 90
    missing = sorted(index for gone in done.manifest["lost"] for index in gone["possibly_sent"])
    assert sorted(indices + missing) == list(range(total)), log
    assert len(set(ended.strings("worker"))) == 3
    if not cut_s:
        assert code == 0, log
        assert not missing
