"""An hour of load at 6 requests a second, compressed into a minute, with a fault every few seconds:
every request that reached the server is on record or named as possibly sent, and memory stays
flat."""

from __future__ import annotations

import itertools
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from llama_load.servers.local_ports import free_port
from llama_load.servers.serving.launch import Server, start
from llama_load.servers.serving.simulated import read_log
from tests.searching import SECONDS, SEED
from tests.swarms import Swarm, slow_link, swarm, wait_until

FAULT_EVERY_S = 4.0
# A search in which fewer requests a second were recorded says nothing.
LEAST_RPS = 20.0
# What Python, Arrow and Locust's statistics may add after the first quarter; a record kept by
# mistake is some KB, of 30,000 some 100 MB.
MOST_GROWTH_MB = 40.0


class RestartedServer:
    """A simulated server that can be killed and comes back on the same port, with a log an
    incarnation. Every 50th answer is reset."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.port = folder, free_port()
        self._numbers = itertools.count()
        self.logs: list[Path] = []
        self.url = f"http://127.0.0.1:{self.port}"
        self._running: Server = self._start()

    def _start(self) -> Server:
        log = self._folder / f"server-{next(self._numbers)}.jsonl"
        self.logs.append(log)
        command = [
            sys.executable,
            "-m",
            "llama_load.cli.main",
            "serve",
            "--simulated",
            "--port",
            str(self.port),
            "--log",
            str(log),
        ]
        command += [
            "--first-token-ms",
            "20",
            "--interval-ms",
            "4",
            "--fault",
            "reset",
            "--fault-every",
            "50",
        ]
        return start(command, self.url, self._folder / "server.out")

    def restart(self) -> None:
        os.kill(self._running.pid, signal.SIGKILL)
        self._running.stop()
        time.sleep(0.5)  # it is gone for a while
        self._running = self._start()

    def stop(self) -> None:
        self._running.stop()

    def answered(self) -> set[str]:
        """The ids of all requests that it came to the end of, whatever became of them. (A killed
        one's last line may be torn.)"""
        found = set()
        for log in self.logs:
            whole = log.read_bytes().rpartition(b"\n")[0]
            log.write_bytes(whole + b"\n" if whole else b"")
            found |= {entry["request_id"] for entry in read_log(log)}
        return found


def stop_for(process: subprocess.Popen[str], seconds: float) -> None:
    process.send_signal(signal.SIGSTOP)
    time.sleep(seconds)  # it stands still
    process.send_signal(signal.SIGCONT)


def one_fault(
    kind: str, dice: random.Random, running: Swarm, server: RestartedServer
) -> None:
    alive = [worker for worker in running.workers if worker.poll() is None]
    if kind == "server":
        server.restart()
    elif kind == "stop":
        stop_for(dice.choice(alive), 1.5)
    elif kind == "kill":
        dice.choice(alive[1:]).kill()  # the first one's memory is watched
        running.add_worker()


def megabytes(process: subprocess.Popen[str]) -> float:
    return psutil.Process(process.pid).memory_info().rss / 1e6


@pytest.mark.heavy
@pytest.mark.search
@pytest.mark.timeout(SECONDS + 170)
def test_an_hour_of_load_with_a_fault_every_few_seconds(tmp_path: Path) -> None:
    """Catches memory that grows with the number of requests, and a request lost among thousands."""
    dice = random.Random(SEED)
    server = RestartedServer(tmp_path)
    memory: dict[str, list[float]] = {"master": [], "worker": []}
    over = threading.Event()
    try:
        # Through a proxy, as from another machine: a run ends when a server whose process it sees
        # has ended.
        with (
            slow_link(server.port, 0, 0) as way,
            swarm(
                *(
                    tmp_path / "s",
                    f"http://127.0.0.1:{way.port}",
                    3,
                    "-u",
                    "30",
                    "-t",
                    f"{SECONDS:.0f}s",
                ),
                *("--max-tokens", "12", "--fail-if", "failure_ratio>1"),
            ) as running,
        ):

            def watch() -> None:
                while not over.wait(1):
                    with suppress(psutil.Error):
                        memory["master"].append(megabytes(running.master))
                        memory["worker"].append(megabytes(running.workers[0]))

            wait_until(running.has_records)
            threading.Thread(target=watch, daemon=True).start()
            deadline = time.monotonic() + SECONDS - 10
            for kind in itertools.cycle(("kill", "server", "stop")):
                if time.monotonic() > deadline:
                    break
                one_fault(kind, dice, running, server)
                time.sleep(FAULT_EVERY_S)  # until the next fault
            over.set()  # what the report takes at the end is another matter
            done = running.finish(90)
    finally:
        over.set()
        server.stop()
    assert "Traceback" not in done.err
    assert done.code == 3, done.err  # workers were killed, which is no complete run
    recorded = done.records.strings("request_id")
    assert len(recorded) == len(set(recorded))
    named = sum(
        len(gone["possibly_sent"]) + len(gone["possibly_sent_warmup"])
        for gone in done.manifest["lost"]
    )
    unrecorded = server.answered() - set(recorded)
    assert len(unrecorded) <= named, (len(unrecorded), named, len(recorded))
    assert len(recorded) > LEAST_RPS * SECONDS
    for values in memory.values():
        quarter = len(values) // 4
        growth = statistics.median(values[-quarter:]) - statistics.median(
            values[quarter : 2 * quarter]
        )
        assert growth < MOST_GROWTH_MB, (growth, [round(value) for value in values])
    print(
        f"{len(recorded)} records, {len(unrecorded)} unrecorded, {named} named, MB: {[(v[0], v[-1]) for v in memory.values()]}"
    )
