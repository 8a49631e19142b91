"""Many streams at once in a swarm on this machine: 20,000 over two addresses of the loopback
network, whose records are the union of what the servers logged.

    .venv/bin/python -m benchmarks.streams [--streams 20000] [--workers 4]

A connection needs a local port for each address that it leads to, and a machine has 28,232 by
default: one server at one address would take half of what is there, and the preflight refuses more.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

from benchmarks.harness import heading, headless_chat
from llama_load.run_folder import load_run
from llama_load.servers.local_ports import free_port
from llama_load.servers.serving.launch import start
from llama_load.servers.serving.simulated import read_log

# Tokens of an answer, the time between them and to the first one, s: all streams have begun long
# before the first one ends.
TOKENS, EVERY_S, FIRST_S = 6, 6, 10


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=4)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        servers = []
        for host in ("127.0.0.2", "127.0.0.3"):
            port = free_port()
            serve = [
                sys.executable,
                "-m",
                "llama_load.cli.main",
                "serve",
                "--simulated",
                "--host",
                host,
                "--port",
                str(port),
            ]
            serve += [
                "--log",
                str(folder / f"{host}.jsonl"),
                "--first-token-ms",
                str(FIRST_S * 1000),
                "--interval-ms",
                str(EVERY_S * 1000),
            ]
            servers.append(
                start(serve, f"http://{host}:{port}", folder / f"{host}.out")
            )
        command = headless_chat()
        command += [
            "--host",
            ",".join(server.url for server in servers),
            "--max-tokens",
            str(TOKENS),
            "--loglevel",
            "ERROR",
        ]
        command += [
            "--processes",
            str(asked.workers),
            "-u",
            str(asked.streams),
            "--num-prompts",
            str(asked.streams),
        ]
        command += ["--warmup", "0", "--run-dir", str(folder / "run")]
        begun_s = time.monotonic()
        client = subprocess.Popen(
            command, stdout=(folder / "client.out").open("wb"), stderr=subprocess.STDOUT
        )
        most = np.zeros(2)
        while client.poll() is None and time.monotonic() - begun_s < 280:
            time.sleep(2)
            processes = [
                psutil.Process(client.pid),
                *psutil.Process(client.pid).children(recursive=True),
            ]
            memory = [
                process.memory_info().rss / 2**20
                for process in processes
                if process.is_running()
            ]
            most = np.maximum(most, [max(memory), sum(memory)])
        took_s = time.monotonic() - begun_s
        for server in servers:
            server.stop()
        logged = [
            row
            for host in ("127.0.0.2", "127.0.0.3")
            for row in read_log(folder / f"{host}.jsonl")
        ]
        if not (folder / "run" / "summary.json").exists():
            raise SystemExit(
                (folder / "client.out").read_text(errors="replace")[-3000:]
            )
        run = load_run(folder / "run")
        starts, ends = (
            run.records.instants(f"{name}_mono_ns") for name in ("started", "ended")
        )
        at_once = np.cumsum(
            np.repeat((1, -1), len(starts))[
                np.argsort(np.concatenate((starts, ends)), kind="stable")
            ]
        ).max()
        print(heading())
        print(
            "| streams at once | records | distinct | logged by the servers | succeeded | workers | s | largest process, all (MiB) |"
        )
        print("|---:|---:|---:|---:|---:|---:|---:|---:|")
        print(
            f"| {at_once} | {len(run.records)} | {len(set(run.records.strings('prompt_index')))} | {len(logged)} | "
            f"{len(run.records.ok())} | {asked.workers} | {took_s:.0f} | {most[0]:.0f}, {most[1]:.0f} |"
        )
        print(
            "\n".join(
                line
                for line in (folder / "run" / "summary.txt").read_text().splitlines()
                if "erdict" in line
            )
        )


if __name__ == "__main__":
    main()
