"""CPU and memory of a swarm's master: 50 workers, 5000 requests/s with 200 ITLs each.

    .venv/bin/python -m benchmarks.swarm [--workers 50] [--rate 5000] [--seconds 20] [--catch-up 0]

The master is a real Locust master with llama-load and a swarm key. Other processes simulate the
workers with their messages: 50 times a second each asks for the leases of the requests that have
ended, and reports those that have begun with that; it sends records as often as the master asks
for, and never more than 256 KiB that are not acknowledged. What is sent is the load; what is stored
is what the master carries. With --catch-up, the load ends after that time, and the master has the
rest of the time to catch up.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from gevent import monkey

monkey.patch_all()

import gevent  # noqa: E402
import msgspec  # noqa: E402
import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
from locust import __version__ as LOCUST  # noqa: E402
from locust.rpc import Message  # noqa: E402

from benchmarks.harness import heading  # noqa: E402
from llama_load.loadgen.swarm import messages  # noqa: E402
from llama_load.loadgen.swarm.lease_packing import unpack_leases  # noqa: E402
from llama_load.loadgen.swarm.outbox import WINDOW_BYTES  # noqa: E402
from llama_load.loadgen.swarm.sockets import Client  # noqa: E402
from llama_load.loadgen.swarm.swarm_key import curve_keys  # noqa: E402
from llama_load.run_folder import load_run  # noqa: E402
from llama_load.run_folder.observed.record import (  # noqa: E402
    INSTANTS,
    RequestRecord,
    schema,
    to_batch,
)
from llama_load.run_folder.observed.worker_health import WorkerHealth  # noqa: E402
from llama_load.servers.local_ports import free_port  # noqa: E402
from llama_load.servers.serving.launch import start  # noqa: E402

GAPS, TICK_S, PROCESSES, MOST_RECORDS = 200, 0.02, 2, 32
KEY = "key of the benchmark's swarm"
HERE = Path(__file__).resolve().parent


class Worker:
    """One simulated worker. `load`: requests that end each second, and for how long; `counts`:
    records sent and stored."""

    def __init__(
        self, number: int, port: int, load: tuple[float, float], counts: Any
    ) -> None:
        self.name = f"made-up_{number:032x}"
        self.rate, self.load_s = load
        self.ahead = max(2, int(self.rate * 0.3))  # leases that it keeps
        self.sent, self.stored = counts
        self.client = Client("127.0.0.1", port, self.name, curve_keys(KEY))
        self.leases: list = []
        self.ended: list = []
        self.begun: list = []
        self.holding: set = set()
        self.unacknowledged: dict[int, tuple[list, int]] = {}
        self.number = 0
        self.flush_s = 0.1
        self.over = False
        self.run = ""
        self.state = "ready"
        gaps = tuple(np.random.default_rng(number).gamma(4, 5, GAPS).tolist())
        pattern = RequestRecord(
            request_id="0" * 16, worker=self.name, user="Chat", workload="Chat", name="Chat", host="http://h", endpoint="chat",
            status="ok", started_mono_ns=1, ended_mono_ns=1, started_wall_ns=1, itl_ms=gaps, ttft_ms=100.0, tpot_ms=20.0,
            e2el_ms=4100.0, first_token_mono_ns=1, output_tokens=GAPS + 1, prompt_tokens=50, token_events=GAPS + 1,
            token_source="usage",
        )  # fmt: skip
        self.pattern = to_batch([pattern] * MOST_RECORDS)
        self.say("client_ready", LOCUST)
        for greenlet in (self.listen, self.beat):
            gevent.spawn(greenlet)

    def say(self, kind: str, data: object) -> None:
        self.client.send(
            Message(
                kind,
                data | {"run": self.run} if isinstance(data, dict) else data,
                self.name,
            )
        )

    def beat(self) -> None:
        while True:
            self.say(
                "heartbeat",
                {
                    "state": self.state,
                    "current_cpu_usage": 1.0,
                    "current_memory_usage": 1,
                },
            )
            gevent.sleep(1)

    def listen(self) -> None:
        while True:
            message = self.client.recv()
            data = message.data
            if message.type == messages.LEASES:
                leases = unpack_leases(data["leases"])
                self.leases += leases
                self.holding |= {lease.key for lease in leases}
                delivery = data["delivery"]
                self.begun += [(*lease.key, delivery) for lease in leases]
            elif message.type == messages.ACK:
                for number in data["numbers"]:
                    keys, _ = self.unacknowledged.pop(number, ([], 0))
                    self.stored.value += len(keys)
                    self.holding.difference_update(keys)
            elif message.type == messages.PING:
                self.flush_s = data["batch_every_s"]
                answer = {
                    "asked_ns": data["asked_ns"],
                    "worker_ns": time.monotonic_ns(),
                }
                if not self.over:
                    answer |= {
                        "delivered": data["delivered"],
                        "holds": list(self.holding),
                        "wants": {"Chat": max(0, self.ahead - len(self.leases))},
                    }
                self.say(messages.PONG, answer)
            elif message.type == messages.RUN:
                self.run = data["run"]
                gevent.spawn(self.work)
            elif message.type == "spawn":
                self.state = "running"
                users = data["user_classes_count"]
                self.say(
                    "spawning_complete",
                    {"user_classes_count": users, "user_count": sum(users.values())},
                )
            elif message.type == messages.END:
                self.state, self.over = "ready", True

    def work(self) -> None:
        begin = flushed = time.monotonic()
        due = 0.0
        self.say(
            messages.REPORT, {"started": [], "ended": [], "wants": {"Chat": self.ahead}}
        )
        for tick in range(1, 10**9):
            gevent.sleep(max(0.0, begin + tick * TICK_S - time.monotonic()))
            if self.over:
                break
            due += self.rate * TICK_S if time.monotonic() - begin < self.load_s else 0.0
            count = min(int(due), len(self.leases))
            due -= int(due)
            over, self.leases = self.leases[:count], self.leases[count:]
            if over:
                self.ended += over
                ends = [(*lease.key, False) for lease in over]
                self.say(
                    messages.REPORT,
                    {
                        "started": self.begun,
                        "ended": ends,
                        "wants": {"Chat": len(over)},
                    },
                )
                self.begun = []
            on_the_way = sum(size for _, size in self.unacknowledged.values())
            if time.monotonic() - flushed > self.flush_s and on_the_way < WINDOW_BYTES:
                flushed = time.monotonic()
                self.flush()
        self.say(messages.BACK, {"keys": [lease.key for lease in self.leases]})
        while self.ended or self.unacknowledged:
            self.flush()
            gevent.sleep(0.1)
        self.say(
            messages.FLUSHED,
            {
                "batches": self.number,
                "open": [],
                "gave_up": False,
                "health": msgspec.to_builtins(WorkerHealth(self.name)),
            },
        )

    def flush(self) -> None:
        while (
            self.ended
            and sum(size for _, size in self.unacknowledged.values()) < WINDOW_BYTES
        ):
            leases, self.ended = self.ended[:MOST_RECORDS], self.ended[MOST_RECORDS:]
            self.number += 1
            self.sent.value += len(leases)
            batch = self.batch(leases)
            self.unacknowledged[self.number] = (
                [lease.key for lease in leases],
                len(batch),
            )
            self.client.send_batch(messages.pack_header(self.number, self.run), batch)

    def batch(self, leases: list) -> bytes:
        now = [time.monotonic_ns()] * len(leases)
        own = {
            "prompt_index": [lease.index for lease in leases],
            "warmup": [lease.warmup for lease in leases],
            "request_id": [
                f"{self.name[-4:]}{lease.warmup:1d}{lease.index:011d}"
                for lease in leases
            ],
            **dict.fromkeys(
                INSTANTS & {"started_mono_ns", "ended_mono_ns", "first_token_mono_ns"},
                now,
            ),
        }
        pattern = self.pattern.slice(0, len(leases))
        columns = [
            pa.array(own[field.name], field.type)
            if field.name in own
            else pattern[field.name]
            for field in schema()
        ]
        return pa.record_batch(columns, schema=schema()).serialize().to_pybytes()


def simulate(numbers: range, port: int, load: tuple[float, float], counts: Any) -> None:
    """Simulate these workers in this process, until it is terminated."""
    workers = [Worker(number, port, load, counts) for number in numbers]
    gevent.wait([gevent.spawn(lambda: gevent.sleep(10**6)) for _ in workers])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=50)
    parser.add_argument("--rate", type=float, default=5000.0)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--catch-up", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, port, server_port, metrics_port = (
            Path(name),
            free_port(),
            free_port(),
            free_port(),
        )
        server = start(
            [
                sys.executable,
                "-m",
                "llama_load.cli.main",
                "serve",
                "--simulated",
                "--port",
                str(server_port),
            ],
            f"http://127.0.0.1:{server_port}",
            folder / "server.log",
        )
        users = int(asked.rate)
        command = [
            sys.executable,
            "-m",
            "locust",
            "-f",
            str(HERE / "llama_load_user.py"),
            "--master",
            "--headless",
        ]
        command += [
            "--master-bind-port",
            str(port),
            "--expect-workers",
            str(asked.workers),
            "-u",
            str(users),
        ]
        command += [
            "-t",
            f"{asked.seconds}s",
            "--metrics-port",
            str(metrics_port),
            "--host",
            server.url,
            "--warmup",
            "0",
        ]
        command += ["--run-dir", str(folder / "run"), "--loglevel", "ERROR"]
        env = {
            "BENCH_OUT": "/dev/null",
            "BENCH_TOKENS": "1",
            "LLAMA_LOAD_SWARM_KEY": KEY,
        }
        with (folder / "out").open("wb") as out:
            master = subprocess.Popen(
                command, env=os.environ | env, stdout=out, stderr=out
            )
        time.sleep(3)
        load_s = float(asked.catch_up or 10**9)
        context = multiprocessing.get_context("spawn")
        counts = [
            (context.Value("q", 0), context.Value("q", 0)) for _ in range(PROCESSES)
        ]
        share = -(-asked.workers // PROCESSES)
        simulators = [
            context.Process(
                target=simulate,
                args=(
                    range(i * share, min((i + 1) * share, asked.workers)),
                    port,
                    (asked.rate / asked.workers, load_s),
                    counts[i],
                ),
                daemon=True,
            )
            for i in range(PROCESSES)
        ]
        for simulator in simulators:
            simulator.start()
        process = psutil.Process(master.pid)
        print(heading())
        print(
            "| after (s) | records/s | waiting | us of CPU each | master's core | lag (s) | master's memory (MiB) |"
        )
        print("|---:|---:|---:|---:|---:|---:|---:|")

        def now() -> tuple[float, int, float]:
            times = process.cpu_times()
            return (
                time.monotonic(),
                sum(stored.value for _, stored in counts),
                times.user + times.system,
            )

        begin = now()
        while (
            master.poll() is None and time.monotonic() - begin[0] < asked.seconds + 60
        ):
            before = now()
            gevent.sleep(5)
            if master.poll() is not None:
                break
            after = now()
            seconds, records, cpu = (b - a for a, b in zip(before, after, strict=True))
            waiting = sum(sent.value - stored.value for sent, stored in counts)
            each = cpu / records * 1e6 if records else float("nan")
            row = (
                after[0] - begin[0],
                records / seconds,
                waiting,
                each,
                100 * cpu / seconds,
                lag_s(metrics_port),
            )
            memory = process.memory_info().rss / 2**20
            print(
                "| {:.0f} | {:.0f} | {} | {:.0f} | {:.0f} % | {:.1f} |".format(*row),
                f"{memory:.0f} |",
                flush=True,
            )
        for simulator in simulators:
            simulator.terminate()
        server.stop()
        master.wait(60)
        disk = (
            sum(
                file.stat().st_size
                for file in (folder / "run").rglob("*")
                if file.is_file()
            )
            / 2**20
        )
        total = sum(sent.value for sent, _ in counts)
        stored = load_run(folder / "run").records
        different = len(set(stored.strings("prompt_index")))
        print(
            f"\n{total} records sent, {len(stored)} on disk, of {different} requests, in {disk:.1f} MiB; exit code {master.returncode}"
        )
        print(
            "\n".join(
                line
                for line in (folder / "out").read_text(errors="replace").splitlines()
                if "records were" in line
            )
        )
        if master.returncode:
            print((folder / "out").read_text(errors="replace")[-2000:])


def lag_s(port: int) -> float:
    """What the master's /metrics says."""
    import requests

    try:
        text = requests.get(f"http://127.0.0.1:{port}/metrics", timeout=3).text
    except requests.RequestException:
        return float("nan")
    return next(
        (
            float(line.split()[1])
            for line in text.splitlines()
            if line.startswith("llama_load_master_lag_seconds ")
        ),
        0.0,
    )


if __name__ == "__main__":
    main()
