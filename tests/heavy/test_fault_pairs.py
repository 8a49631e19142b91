"""Pairs of faults at random between real processes: a master, three workers and a server with a
log, each on a host of its own.

Each seed is a run of its own; a failure names the seed and its faults.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from llama_load.run_folder.observed.record import OK, UNFINISHED
from llama_load.servers.serving.simulated import read_log
from tests.conftest import SHAREGPT, Finished
from tests.namespaces import Network, hosts_on_a_bridge
from tests.searching import SECONDS, SEED, seeds
from tests.swarms import wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.search, pytest.mark.timeout(SECONDS + 300)]

MASTER = 1
WORKERS = (2, 3, 4)
SERVER = 5
RUN_S = 14
# Faults begin within this time, and last as long as one of these. The longest ones are above the
# time after which Locust calls a worker missing, and below that after which it is lost.
BEGIN_WITHIN_S = 9.0
LASTING_S = (0.5, 2.0, 5.0, 9.0)
# A run in which a larger share of the requests failed ends with exit code 1.
MOST_FAILED = 0.01
# The end of a run waits for silent workers.
ENDS_WITHIN_S = 150.0


@dataclass
class Run:
    """A swarm under way."""

    network: Network
    folder: Path
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    ended: list[subprocess.Popen[bytes]] = field(default_factory=list)
    is_lossy: bool = False  # a worker was killed

    def start_server(self) -> None:
        url = f"http://10.77.0.{SERVER}:8080"
        command = [sys.executable, "-m", "llama_load.cli.main", "serve", "--simulated"]
        command += ["--host", f"10.77.0.{SERVER}", "--port", "8080"]
        command += ["--log", str(self.folder / "server.jsonl")]
        command += ["--first-token-ms", "30", "--interval-ms", "10"]
        self.processes[SERVER] = self.network.start(
            SERVER, command, self.folder, "server.log"
        )
        probe = ["ip", "netns", "exec", f"{self.network.name}-{SERVER}", "curl", "-sf"]
        probe.append(f"{url}/health")
        wait_until(
            lambda: (
                subprocess.run(probe, check=False, capture_output=True).returncode == 0
            )
        )

    def start_master(self, load: list[str]) -> None:
        command = [
            sys.executable,
            "-m",
            "locust",
            "-f",
            str(SHAREGPT),
            "--loglevel",
            "WARNING",
        ]
        command += ["--master", "--headless", "--expect-workers", str(len(WORKERS))]
        command += ["--host", f"http://10.77.0.{SERVER}:8080", "-t", f"{RUN_S}s"]
        # An answer over a half-open connection never comes.
        command += ["--max-tokens", "20", "--request-timeout", "20"]
        command += ["--run-dir", str(self.folder / "run"), *load]
        self.processes[MASTER] = self.network.start(
            MASTER, command, self.folder, "master.log"
        )

    def start_worker(self, host: int) -> None:
        folder = self.folder / f"{host}-{len(self.ended)}"
        folder.mkdir()
        command = [
            sys.executable,
            "-m",
            "locust",
            "-f",
            str(SHAREGPT),
            "--loglevel",
            "WARNING",
        ]
        command += ["--worker", "--master-host", f"10.77.0.{MASTER}"]
        self.processes[host] = self.network.start(host, command, folder, "log")

    def signal(self, host: int, number: int) -> None:
        process = self.processes[host]
        if process.poll() is None:
            process.send_signal(number)

    def replace(self, host: int, number: int) -> None:
        """End a worker with this signal, and start another one in its place."""
        self.signal(host, number)
        self.ended.append(self.processes[host])
        self.start_worker(host)

    def has_records(self) -> bool:
        return any(
            file.stat().st_size > 0 for file in self.folder.glob("run/requests*.arrows")
        )

    def logs(self) -> str:
        """The last lines of all its processes."""
        files = sorted(self.folder.glob("**/*log"))
        tails = [
            f"{file.relative_to(self.folder)}: {file.read_text()[-1500:]}"
            for file in files
        ]
        return "\n".join(tails)

    def kill_all(self) -> None:
        for process in [*self.processes.values(), *self.ended]:
            process.kill()
            process.wait()


def stop(run: Run, host: int, seconds: float) -> None:
    run.signal(host, signal.SIGSTOP)
    time.sleep(seconds)  # the fault lasts
    run.signal(host, signal.SIGCONT)


def cut(run: Run, host: int, seconds: float) -> None:
    run.network.cut(host)
    time.sleep(seconds)  # the fault lasts
    run.network.heal(host)


def filtered(*rule: str) -> Callable[[Run, int, float], None]:
    """A fault of the network that a rule of the host's firewall makes."""

    def act(run: Run, host: int, seconds: float) -> None:
        run.network.rule(host, *rule)
        time.sleep(seconds)  # the fault lasts
        run.network.drop_rules(host)

    return act


def kill(run: Run, host: int, _seconds: float) -> None:
    run.is_lossy = True
    run.replace(host, signal.SIGKILL)


def leave(run: Run, host: int, _seconds: float) -> None:
    run.replace(host, signal.SIGTERM)


def interrupt(run: Run, _host: int, _seconds: float) -> None:
    run.signal(MASTER, signal.SIGINT)


TENTH = ("-m", "statistic", "--mode", "random", "--probability", "0.1")
REFUSE = ("-j", "REJECT", "--reject-with", "tcp-reset")
FAULTS: dict[str, Callable[[Run, int, float], None]] = {
    "process stopped": stop,
    "network cut": cut,
    "nothing arrives": filtered("-A", "INPUT", "-i", "eth", "-j", "DROP"),
    "nothing leaves": filtered("-A", "OUTPUT", "-o", "eth", "-j", "DROP"),
    "a tenth is lost": filtered("-A", "INPUT", "-i", "eth", *TENTH, "-j", "DROP"),
    "connections reset": filtered("-A", "INPUT", "-i", "eth", "-p", "tcp", *REFUSE),
    "kill -9 and another one": kill,
    "SIGTERM and another one": leave,
    "Ctrl-C": interrupt,
}
LOADS = (
    ["-u", "9", "--warmup", "0"],
    ["-u", "6", "--warmup", "0", "--at-end", "wait"],
    ["--request-rate", "20", "--warmup", "0"],
)


@dataclass(frozen=True)
class Fault:
    kind: str
    at_s: float
    host: int
    seconds: float


def drawn(dice: random.Random) -> list[Fault]:
    faults = [
        Fault(
            dice.choice(list(FAULTS)),
            round(dice.uniform(0.2, BEGIN_WITHIN_S), 1),
            dice.choice(WORKERS),
            dice.choice(LASTING_S),
        )
        for _ in range(2)
    ]
    return sorted(faults, key=lambda fault: fault.at_s)


def act(run: Run, faults: list[Fault]) -> None:
    """Each in a thread of its own: they overlap."""
    import threading

    def one(fault: Fault) -> None:
        time.sleep(fault.at_s)  # until it begins
        FAULTS[fault.kind](run, fault.host, fault.seconds)

    threads = [threading.Thread(target=one, args=[fault]) for fault in faults]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def check(run: Run, done: Finished, story: str) -> int:
    """Each request that reached the server is recorded once or named. How many were recorded."""
    assert "Traceback" not in done.err, f"{story}\n{done.err}"
    check_exit_code(done, story)
    ids = done.records.strings("request_id")
    assert len(ids) == len(set(ids)), story
    spooled = {
        row
        for folder in run.folder.glob("*/runs/spool-*")
        for row in spooled_ids(folder)
    }
    reached = {row["request_id"] for row in read_log(run.folder / "server.jsonl")}
    unrecorded = reached - set(ids) - spooled
    named = sum(
        len(gone["possibly_sent"]) + len(gone["possibly_sent_warmup"])
        for gone in done.manifest["lost"]
    )
    assert len(unrecorded) <= named, (
        f"{story}: {len(unrecorded)} unrecorded, {named} named"
    )
    if not run.is_lossy:
        assert not unrecorded, f"{story}: {unrecorded} have no record\n{done.err}"
    return len(ids)


def check_exit_code(done: Finished, story: str) -> None:
    """1 is the code of a run whose requests truly failed: over a network that was cut they time out
    or find no route. Its summary has to say so, and its records have to be as many."""
    assert done.code in (0, 1, 3), f"{story}\n{done.err}"
    if done.code == 3:
        return

    summary = done.summary
    words = summary["llama_load"]["verdict"]["words"]
    statuses = Counter(done.records.strings("status"))
    failed = summary["failed"]
    measured = summary["completed"] + failed
    has_failed = failed > MOST_FAILED * measured
    assert ("FAILED" in words) == has_failed, f"{story}: {words}, {failed} failed"
    assert (done.code == 1) == has_failed, f"{story}: {failed} of {measured} failed"

    classes = summary["llama_load"]["failures"]
    counts = {found["kind"]: found["count"] for found in classes}
    in_classes = sum(found["count"] for found in classes)
    recorded = sum(
        count
        for status, count in statuses.items()
        if status != OK and status not in UNFINISHED
    )
    assert in_classes == failed == recorded, f"{story}: {counts}, {statuses}"


def spooled_ids(folder: Path) -> list[str]:
    from llama_load.run_folder.journal import read_journal

    ids: list[str] = (
        read_journal(folder / "requests.arrows").table["request_id"].to_pylist()
    )
    return ids


def test_every_request_is_recorded_or_named_whatever_two_faults_do(
    tmp_path: Path,
) -> None:
    """Catches a request that two overlapping faults of real networks and processes lose; the
    simulation has neither TCP nor the kernel."""
    recorded = 0
    with hosts_on_a_bridge(5) as network:
        for seed in seeds(SEED):
            dice = random.Random(seed)
            faults = drawn(dice)
            load = dice.choice(LOADS)
            story = f"seed {seed}, {' '.join(load)}: {faults}"
            run = Run(network, tmp_path / str(seed))
            run.folder.mkdir()
            try:
                run.start_server()
                run.start_master(load)
                for host in WORKERS:
                    run.start_worker(host)
                wait_until(run.has_records, 90)
                act(run, faults)
                try:
                    code = run.processes[MASTER].wait(ENDS_WITHIN_S)
                except subprocess.TimeoutExpired:
                    pytest.fail(f"{story}: the run did not end\n{run.logs()}")
            finally:
                run.kill_all()
                for host in WORKERS:
                    network.drop_rules(host)
                    network.heal(host)
            log = (run.folder / "master.log").read_text()
            recorded += check(run, Finished(code, log, log, run.folder / "run"), story)
            print(f"{story}: exit code {code}", flush=True)
    print(f"{seed - SEED + 1} pairs of faults, {recorded:,} records", flush=True)
