"""CPU and memory of a swarm's master: records of 50 workers at 2000 requests/s with 200 ITLs each.

    .venv/bin/python -m benchmarks.swarm [--seconds 20]

The master is a real Locust master with llama-load. One process simulates all workers with Locust's protocol: it requests leases, and
sends a made-up record for each 0.1 s later.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
from gevent import monkey

monkey.patch_all()

import gevent  # noqa: E402
from locust import __version__ as LOCUST  # noqa: E402
from locust.rpc import Message, zmqrpc  # noqa: E402

from benchmarks.harness import heading  # noqa: E402
from llama_load.metrics.evidence import WorkerHealth  # noqa: E402
from llama_load.record import RequestRecord, to_batch  # noqa: E402
from llama_load.serving.process import free_port, start  # noqa: E402
from llama_load.swarm import messages  # noqa: E402

WORKERS, REQUESTS_PER_S, GAPS = 50, 2000, 200
FLUSH_S = 0.1
EACH = int(REQUESTS_PER_S / WORKERS * FLUSH_S)  # requests of one worker between two batches
HERE = Path(__file__).resolve().parent


class Sender:
    """One simulated worker."""

    def __init__(self, number: int, port: int) -> None:
        self.name = f"made-up_{number:032x}"
        self.client = zmqrpc.Client("127.0.0.1", port, self.name)
        self.leases: list = []
        self.sent = self.number = 0
        self.over = False
        self.run = ""
        self.state = "ready"
        gaps = tuple(np.random.default_rng(number).gamma(4, 5, GAPS).tolist())
        now = time.monotonic_ns()
        self.pattern = RequestRecord(
            request_id="", worker=self.name, user="Chat", workload="Chat", name="Chat", host="http://h", endpoint="chat", status="ok",
            started_mono_ns=now, ended_mono_ns=now + 1, started_wall_ns=now, itl_ms=gaps, ttft_ms=100.0, tpot_ms=20.0, e2el_ms=4100.0,
            first_token_mono_ns=now, output_tokens=GAPS + 1, prompt_tokens=50, token_events=GAPS + 1, token_source="usage",
        )  # fmt: skip
        self.say("client_ready", LOCUST)
        gevent.spawn(self.listen)
        gevent.spawn(self.beat)

    def say(self, kind: str, data: object) -> None:
        self.client.send(Message(kind, data | {"run": self.run} if isinstance(data, dict) else data, self.name))

    def beat(self) -> None:
        while True:
            self.say("heartbeat", {"state": self.state, "current_cpu_usage": 1.0, "current_memory_usage": 1})
            gevent.sleep(1)

    def listen(self) -> None:
        while True:
            message = self.client.recv()
            if message.type == messages.LEASES:
                self.leases += messages.unpack_leases(message.data["leases"])
            elif message.type == messages.PING:
                answer = {"asked_ns": message.data["asked_ns"], "worker_ns": time.monotonic_ns()}
                if not self.over:
                    holds = [(lease.warmup, lease.index) for lease in self.leases]
                    answer |= {"delivered": message.data["delivered"], "holds": holds, "wants": {"Chat": 2 * EACH - len(holds)}}
                self.say(messages.PONG, answer)
            elif message.type == messages.RUN:
                self.run = message.data["run"]
                gevent.spawn(self.work)
            elif message.type == "spawn":
                self.state = "running"
                users = message.data["user_classes_count"]
                self.say("spawning_complete", {"user_classes_count": users, "user_count": sum(users.values())})
            elif message.type == messages.END:
                self.state = "ready"
                self.over = True
                self.say(messages.BACK, {"keys": [lease.key for lease in self.leases]})
                last = messages.Flushed(self.number, WorkerHealth(self.name))
                self.say(messages.FLUSHED, {"last_word": messages.pack(last)})

    def work(self) -> None:
        begin = time.monotonic()
        self.say(messages.WANT, {"over": [], "workload": "Chat", "count": 2 * EACH})
        for tick in range(1, 10**9):
            gevent.sleep(max(0.0, begin + tick * FLUSH_S - time.monotonic()))
            if self.over:
                return
            due, self.leases = self.leases[:EACH], self.leases[EACH:]
            if not due:
                continue
            self.say(messages.WANT, {"over": [], "workload": "Chat", "count": len(due)})
            records = [
                replace(
                    self.pattern,
                    request_id=f"{self.name}-{lease.warmup}-{lease.index}",
                    prompt_index=lease.index,
                    warmup=lease.warmup,
                )
                for lease in due
            ]
            self.number += 1
            self.sent += len(due)
            self.say(messages.RECORDS, {"number": self.number, "batch": to_batch(records).serialize().to_pybytes()})


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=20)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as name:
        folder, port, server_port = Path(name), free_port(), free_port()
        server = start(
            [sys.executable, "-m", "llama_load.cli", "serve", "--simulated", "--port", str(server_port)],
            f"http://127.0.0.1:{server_port}",
            folder / "server.log",
        )
        command = [sys.executable, "-m", "locust", "-f", str(HERE / "llama_load_user.py"), "--master", "--headless"]
        command += [
            "--master-bind-port",
            str(port),
            "--expect-workers",
            str(WORKERS),
            "-u",
            str(2 * EACH * WORKERS),
            "-t",
            f"{seconds}s",
        ]
        command += ["--host", server.url, "--warmup", "0", "--run-dir", str(folder / "run"), "--loglevel", "ERROR"]
        env = {"BENCH_OUT": "/dev/null", "BENCH_TOKENS": "1"}
        with (folder / "out").open("wb") as out:
            master = subprocess.Popen(command, env=os.environ | env, stdout=out, stderr=out)
        time.sleep(3)
        senders = [Sender(number, port) for number in range(WORKERS)]
        process = psutil.Process(master.pid)
        rows = []
        while master.poll() is None and not any(sender.over for sender in senders):
            before, sent = process.cpu_times(), sum(sender.sent for sender in senders)
            gevent.sleep(5)
            if master.poll() is None:
                after = process.cpu_times()
                cpu = (after.user + after.system - before.user - before.system) / 5
                rows.append((cpu, process.memory_info().rss / 2**20, (sum(sender.sent for sender in senders) - sent) / 5))
        deadline = time.monotonic() + 60
        while master.poll() is None and time.monotonic() < deadline:
            gevent.sleep(0.2)
        server.stop()
        disk = sum(file.stat().st_size for file in (folder / "run").rglob("*") if file.is_file()) / 2**20
        print(heading())
        print("| after (s) | records/s | master's core | master's memory (MiB) |\n|---:|---:|---:|---:|")
        for number, (cpu, memory, rate) in enumerate(rows, start=1):
            print(f"| {5 * number} | {rate:.0f} | {cpu:.0%} | {memory:.0f} |")
        print(f"\n{sum(sender.sent for sender in senders)} records sent, run folder {disk:.1f} MiB, exit code {master.returncode}")
        if master.returncode:
            print((folder / "out").read_text(errors="replace")[-2000:])


if __name__ == "__main__":
    main()
