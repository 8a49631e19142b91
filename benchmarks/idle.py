"""What idle conversations cost a worker: users between two turns, who think.

    .venv/bin/python -m benchmarks.idle [--users 5000] [--seconds 20]

A master and one worker; each user sends the first turn of its conversation and then thinks until
the end. The baseline has one user.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.harness import heading, headless_chat
from llama_load.servers.local_ports import free_port
from llama_load.servers.serving.launch import start
from llama_load.servers.serving.simulated import read_log

TURNS = 4
PATIENCE_S = 90
KEY = "key of the benchmark's swarm"


def measure(users: int, seconds: int) -> None:
    """Print the row of this many users."""
    with tempfile.TemporaryDirectory() as name:
        folder, port, server_port = Path(name), free_port(), free_port()
        log = folder / "log.jsonl"
        log.touch()
        turns = [
            {
                "from": who,
                "value": f"This is what the {who} says in turn {words}, at some length",
            }
            for words in range(TURNS)
            for who in ("human", "gpt")
        ]
        talks = [
            {
                "id": str(number),
                "conversations": [
                    dict(
                        turns[0],
                        value=f"Tell me more about the number {number}, please",
                    ),
                    *turns[1:],
                ],
            }
            for number in range(users)
        ]
        (folder / "talks.json").write_text(json.dumps(talks))
        serve = [
            sys.executable,
            "-m",
            "llama_load.cli.main",
            "serve",
            "--simulated",
            "--port",
            str(server_port),
            "--log",
            str(log),
        ]
        server = start(serve, f"http://127.0.0.1:{server_port}", folder / "server.out")
        common = [*headless_chat(), "--loglevel", "ERROR"]
        command = [
            *common,
            "--master",
            "--master-bind-port",
            str(port),
            "--expect-workers",
            "1",
            "--host",
            server.url,
            "-u",
            str(users),
        ]
        command += [
            "--num-prompts",
            str(users * TURNS),
            "--dataset-path",
            str(folder / "talks.json"),
            "--turns",
            str(TURNS),
        ]
        command += [
            "--think-time",
            "1000",
            "--warmup",
            "0",
            "--max-tokens",
            "2",
            "--run-dir",
            str(folder / "run"),
        ]
        env = os.environ | {"LLAMA_LOAD_SWARM_KEY": KEY}
        with (folder / "out").open("wb") as out:
            master = subprocess.Popen(
                command, env=env, stdout=out, stderr=out, cwd=folder
            )
            worker = subprocess.Popen(
                [*common, "--worker", "--master-port", str(port)],
                env=env,
                stdout=out,
                stderr=out,
                cwd=folder,
            )
        process, deadline = psutil.Process(worker.pid), time.monotonic() + PATIENCE_S
        while (
            sum(1 for _ in read_log(log)) < users
            and time.monotonic() < deadline
            and master.poll() is None
        ):
            time.sleep(1)
        time.sleep(3)  # records, reports, statistics
        if master.poll() is not None:
            raise SystemExit((folder / "out").read_text(errors="replace")[-2000:])
        used, begun_s = cpu_s(process), time.monotonic()
        by_master = cpu_s(psutil.Process(master.pid))
        time.sleep(seconds)
        took_s = time.monotonic() - begun_s
        shares = [
            100 * (cpu_s(psutil.Process(pid)) - since) / took_s
            for pid, since in ((worker.pid, used), (master.pid, by_master))
        ]
        memory = process.memory_info().rss / 2**20
        asleep = sum(
            1
            for each in process.net_connections()
            if each.raddr and each.raddr.port == server_port
        )
        print(
            f"| {users} | {shares[0]:.1f} % | {shares[1]:.1f} % | {memory:.0f} | {asleep} |",
            flush=True,
        )
        for each in (master, worker):
            each.kill()
            each.wait()
        server.stop()


def cpu_s(process: psutil.Process) -> float:
    """CPU seconds so far."""
    times = process.cpu_times()
    return times.user + times.system


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=5000)
    parser.add_argument("--seconds", type=int, default=20)
    asked = parser.parse_args()
    print(heading())
    print(
        "| users who think | worker's core | master's core | worker's memory (MiB) | connections to the server |"
    )
    print("|---:|---:|---:|---:|---:|")
    for users in (1, asked.users):
        measure(users, asked.seconds)


if __name__ == "__main__":
    main()
