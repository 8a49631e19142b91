"""What grows in a long run: memory, file descriptors and threads of a master and its workers.

    .venv/bin/python -m benchmarks.long_run [--minutes 30] [--workers 2] [--rate 20]

An open loop against a simulated server, looked at every 10 s. The first third is left out: Python
and Arrow have grown by then to what they need. Of the rest each row has the least and the most, and
how fast the memory grows by a line of least squares, also for 24 hours at that rate.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from benchmarks.harness import heading
from llama_load.ground.bundled import bundled
from llama_load.run_folder import load_run
from llama_load.servers.local_ports import free_port
from llama_load.servers.serving.launch import start

LOOK_EVERY_S = 10.0
TOKENS = 16
# The report at the end of an hour of records takes some seconds.
ENDS_WITHIN_S = 120.0


@dataclass(frozen=True, slots=True)
class Look:
    """A process at one time: memory in MiB."""

    at_s: float
    memory_mib: float
    descriptors: int
    threads: int


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rate", type=float, default=20)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        server = start(server_command(port), url, folder / "server.out")
        try:
            looks = watched(
                client_command(url, folder, asked), folder, asked.minutes * 60
            )
        finally:
            server.stop()
        records = len(load_run(folder / "run").records)
    print(heading())
    print_table(looks, asked.minutes * 60, records)


def server_command(port: int) -> list[str]:
    """A server that answers within a fifth of a second."""
    command = [sys.executable, "-m", "llama_load.cli.main", "serve", "--simulated"]
    command += ["--port", str(port)]
    command += ["--first-token-ms", "50", "--interval-ms", "10"]
    return command


def client_command(url: str, folder: Path, asked: argparse.Namespace) -> list[str]:
    """A master and its workers."""
    workload = str(bundled("locustfiles/sharegpt_chat.py"))
    command = [sys.executable, "-m", "locust", "-f", workload, "--headless"]
    command += ["--host", url, "--max-tokens", str(TOKENS), "--loglevel", "ERROR"]
    command += ["--processes", str(asked.workers), "--request-rate", str(asked.rate)]
    command += ["-t", f"{asked.minutes * 60:.0f}s", "--warmup", "0"]
    command += ["--run-dir", str(folder / "run")]
    return command


def watched(command: list[str], folder: Path, seconds: float) -> dict[int, list[Look]]:
    """Run it, and look at each of its processes until its time is over."""
    looks: defaultdict[int, list[Look]] = defaultdict(list)
    begun_s = time.monotonic()
    with (folder / "client.out").open("wb") as out:
        client = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    master = psutil.Process(client.pid)
    while client.poll() is None and time.monotonic() - begun_s < seconds:
        time.sleep(LOOK_EVERY_S)
        for process in [master, *master.children(recursive=True)]:
            with suppress(psutil.Error):
                looks[process.pid].append(look_at(process, time.monotonic() - begun_s))
    client.wait(ENDS_WITHIN_S)
    if not (folder / "run" / "summary.json").exists():
        raise SystemExit((folder / "client.out").read_text(errors="replace")[-3000:])
    return looks


def look_at(process: psutil.Process, at_s: float) -> Look:
    """Its memory is its own (USS): what it shares with other processes is no growth of it."""
    memory_mib = process.memory_full_info().uss / 2**20
    return Look(at_s, memory_mib, process.num_fds(), process.num_threads())


def print_table(looks: dict[int, list[Look]], seconds: float, records: int) -> None:
    """One row a process that was there to the end."""
    print(f"{records:,} records in {seconds / 60:.0f} minutes")
    print()
    print(
        "| process | memory (MiB) | grows by (MiB an hour) | in 24 hours (MiB) | files | threads |"
    )
    print("|---|---:|---:|---:|---:|---:|")
    settled = {
        pid: [look for look in seen if look.at_s > seconds / 3]
        for pid, seen in looks.items()
    }
    most = max(len(seen) for seen in settled.values())
    for place, seen in enumerate(
        seen for seen in settled.values() if len(seen) > 0.9 * most
    ):
        hours = [look.at_s / 3600 for look in seen]
        memory = [look.memory_mib for look in seen]
        files = [look.descriptors for look in seen]
        threads = [look.threads for look in seen]
        slope = float(np.polyfit(hours, memory, 1)[0])
        name = "master" if place == 0 else f"process {place}"
        print(
            f"| {name} | {min(memory):.1f} to {max(memory):.1f} | {slope:+.1f} | {24 * slope:+.0f} "
            f"| {min(files)} to {max(files)} | {min(threads)} to {max(threads)} |"
        )


if __name__ == "__main__":
    main()
