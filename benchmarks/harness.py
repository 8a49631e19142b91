"""Runs one client against a fresh simulated server: the client's cost, and the server's log of the
same requests."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from llama_load.ground.bundled import bundled
from llama_load.servers.local_ports import free_port
from llama_load.servers.serving.launch import Server, start
from llama_load.servers.serving.simulated import read_log

ENDS_WITHIN_S = 300


@dataclass(frozen=True)
class Cost:
    """The client process and its children: CPU seconds; the most memory of the process itself
    (MiB); and how long after its start the server received the first request (s)."""

    cpu_s: float
    memory_mib: float
    startup_s: float


@dataclass
class Bench:
    """A server under load: its URL and log, and a folder for the client's files."""

    server: Server
    log: Path
    folder: Path

    def run(self, command: list[str], env: Mapping[str, str] | None = None) -> Cost:
        """Run the client until it ends."""
        began = time.monotonic_ns()
        with (self.folder / "client.out").open("wb") as out:
            process = subprocess.Popen(
                command,
                env=os.environ | dict(env or {}),
                stdout=out,
                stderr=out,
                cwd=self.folder,
            )
        status, usage, memory_mib = ended(process.pid)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.server.stop()
        rows = self.truth()
        if not rows:
            tail = (self.folder / "client.out").read_text(errors="replace")[-2000:]
            raise SystemExit(f"{' '.join(command)} sent nothing:\n{tail}")
        first = min(entry["received_mono_ns"] for entry in rows)
        return Cost(usage.ru_utime + usage.ru_stime, memory_mib, (first - began) / 1e9)

    def truth(self) -> list[dict[str, Any]]:
        """The server's log: one dict per request."""
        return list(read_log(self.log))


def ended(pid: int) -> tuple[int, Any, float]:
    """Wait for it: status, resource usage and peak memory in MiB. (ru_maxrss would include this
    process's memory at the fork.)"""
    deadline = time.monotonic() + ENDS_WITHIN_S
    most = 0.0
    while time.monotonic() < deadline:
        found, status, usage = os.wait4(pid, os.WNOHANG)
        if found:
            return status, usage, most
        with suppress(OSError, StopIteration):
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            most = max(
                most,
                int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
                / 1024,
            )
        time.sleep(0.05)
    os.kill(pid, 9)
    _, status, usage = os.wait4(pid, 0)
    return status, usage, most


def headless_chat() -> list[str]:
    """The beginning of a command: Locust with the ShareGPT workload, without its web UI."""
    workload = str(bundled("locustfiles/sharegpt_chat.py"))
    return [sys.executable, "-m", "locust", "-f", workload, "--headless"]


@contextmanager
def bench(*arguments: str) -> Iterator[Bench]:
    """A fresh simulated server with these flags."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        port, log = free_port(), folder / "truth.jsonl"
        serve = [
            sys.executable,
            "-m",
            "llama_load.cli.main",
            "serve",
            "--simulated",
            "--port",
            str(port),
            "--log",
            str(log),
            *arguments,
        ]
        server = start(serve, f"http://127.0.0.1:{port}", folder / "server.out")
        try:
            yield Bench(server, log, folder)
        finally:
            server.stop()


def heading() -> str:
    """Where and when this was measured, and how many processes wanted a core in the minute
    before."""
    machine = f"{platform.platform()}, {os.cpu_count()} cores"
    load = f"load {os.getloadavg()[0]:.1f}"
    date = time.strftime("%Y-%m-%d")
    return f"{date}, {machine}, {load}, Python {platform.python_version()}\n"


def pair(values: Any, spell: Callable[[float], str] = "{:.2f}".format) -> str:
    """`p50 / p99` of a sample."""
    return " / ".join(spell(float(np.percentile(values, p))) for p in (50, 99))
