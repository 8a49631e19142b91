"""Several hosts on one machine: a master, three workers and a real llama-server, each in its own
network namespace."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import SHAREGPT, Finished
from tests.namespaces import Network, hosts_on_a_bridge
from tests.swarms import wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]


@pytest.fixture
def network() -> Iterator[Network]:
    """Five hosts: 1 the master, 2 to 4 workers, 5 the server."""
    with hosts_on_a_bridge(5) as found:
        yield found


@dataclass
class Hosts:
    """A master (host 1), three workers (2 to 4) and a real llama-server (5), under way."""

    network: Network
    folder: Path
    master: subprocess.Popen[bytes]

    def has_records(self) -> bool:
        journal = self.folder / "run" / "requests.arrows"
        return journal.exists() and journal.stat().st_size > 20_000

    def finish(self, timeout_s: float = 150) -> Finished:
        code = self.master.wait(timeout_s)
        log = (self.folder / "master.log").read_text()
        return Finished(code, log, log, self.folder / "run")

    def log(self, host: int) -> str:
        return (self.folder / str(host) / "log").read_text()


@pytest.fixture
def hosts(
    network: Network, tiny_model: Path, tmp_path: Path
) -> Iterator[Callable[[int], Hosts]]:
    """Start them all with this many prompts to send: hosts(90)."""
    processes = []

    def started(prompts: int) -> Hosts:
        serve = [
            sys.executable,
            "-m",
            "llama_load.cli.main",
            "serve",
            "--model",
            str(tiny_model),
            "--host",
            "10.77.0.5",
            "--port",
            "8080",
        ]
        locust = [
            sys.executable,
            "-m",
            "locust",
            "-f",
            str(SHAREGPT),
            "--loglevel",
            "WARNING",
        ]
        load = [
            "--host",
            "http://10.77.0.5:8080",
            "-u",
            "9",
            "--num-prompts",
            str(prompts),
            "--max-tokens",
            "60",
            "--ignore-eos",
        ]
        load += ["--run-dir", str(tmp_path / "run"), "--cache-prompt", "on"]
        processes.append(network.start(5, serve, tmp_path, "server.log"))
        probe = [
            "ip",
            "netns",
            "exec",
            f"{network.name}-5",
            "curl",
            "-sf",
            "http://10.77.0.5:8080/health",
        ]
        wait_until(
            lambda: (
                subprocess.run(probe, check=False, capture_output=True).returncode == 0
            ),
            60,
        )
        master = network.start(
            1,
            [*locust, "--master", "--headless", "--expect-workers", "3", *load],
            tmp_path,
            "master.log",
        )
        processes.append(master)
        for host in (2, 3, 4):
            folder = tmp_path / str(host)
            folder.mkdir()
            processes.append(
                network.start(
                    host,
                    [*locust, "--worker", "--master-host", "10.77.0.1"],
                    folder,
                    "log",
                )
            )
        return Hosts(network, tmp_path, master)

    yield started
    for process in processes:
        process.kill()
        process.wait()


def each_prompt_once(done: Finished, total: int) -> list[int]:
    """Every prompt of the plan is on record once, or named as possibly sent by a lost worker; these
    are returned."""
    records = done.records.measured()
    ended = records.where(~records.equals("status", "cancelled"))
    indices = ended.table["prompt_index"].to_pylist()
    missing = [
        index for gone in done.manifest["lost"] for index in gone["possibly_sent"]
    ]
    assert sorted(indices + missing) == list(range(total)), done.out
    # A worker that is cut off early may have no record.
    assert (
        len(
            set(ended.strings("worker"))
            | {gone["worker"] for gone in done.manifest["lost"]}
        )
        == 3
    )
    return missing


@pytest.mark.real
def test_three_workers_and_a_real_server(hosts: Callable[[int], Hosts]) -> None:
    """A bridge between them, an address each: all prompts once. Catches an address that holds on
    loopback alone."""
    done = hosts(90).finish()
    assert done.code == 0, done.out
    assert not each_prompt_once(done, 90)


def test_a_lossy_link(hosts: Callable[[int], Hosts]) -> None:
    """A worker's network drops one packet in fifty, both ways: TCP repairs it, nothing is lost and
    nothing sent twice. Catches a message that is given up before TCP has repaired its loss."""
    running = hosts(150)
    running.network.lose(3, 0.02)
    done = running.finish()
    assert done.code == 0, done.out
    assert not each_prompt_once(done, 150)


def test_a_link_cut_for_10_s(hosts: Callable[[int], Hosts]) -> None:
    """Locust calls the worker missing and takes it back. Catches a worker that the kernel's
    retransmissions bring back too late."""
    running = hosts(600)
    wait_until(running.has_records, 60)
    running.network.cut(3)
    time.sleep(10)  # the link is cut
    running.network.heal(3)
    each_prompt_once(running.finish(), 600)


def test_a_link_cut_for_75_s(
    hosts: Callable[[int], Hosts], run_report: Callable[..., Finished]
) -> None:
    """Locust's worker gives up after 60 s without its master and ends; what became of its last
    requests (cut off with the link, here) is in its spool, whose name it says, and `report --add`
    brings that in. Catches a worker that ends in isolation and leaves no spool."""
    running = hosts(600)
    wait_until(running.has_records, 60)
    running.network.cut(3)
    time.sleep(75)  # the link is cut
    running.network.heal(3)
    done = running.finish()
    assert done.code == 3
    missing = each_prompt_once(done, 600)
    (spool,) = (running.folder / "3" / "runs").glob("spool-*")
    assert (
        f"'llama-load report RUN --add {spool.relative_to(running.folder / '3')}'"
        in running.log(3)
    )
    added = run_report(done.folder, "--add", str(spool))
    (lost,) = added.manifest["lost"]
    assert not lost["possibly_sent"]
    records = added.records.measured()
    ended = set(
        records.where(~records.equals("status", "cancelled")).strings("prompt_index")
    )
    cancelled = set(records.cancelled().strings("prompt_index"))
    assert ended | cancelled == set(range(600))
    assert set(missing) <= cancelled | ended
