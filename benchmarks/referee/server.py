"""The server of the referee: server.c where there is a compiler, else `llama-load serve --simulated`."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from llama_load.wire.local_ports import free_port

SOURCE = Path(__file__).resolve().parent / "server.c"
STARTS_WITHIN_S = 10.0
STOPS_WITHIN_S = 60.0  # it writes its log at the end


@dataclass(frozen=True, slots=True)
class Schedule:
    """Times in ms. `synchronous`: all streams send their tokens at the same instants, as with continuous batching."""

    first_token_ms: float = 100.0
    interval_ms: float = 20.0
    jitter_ms: float = 0.0
    synchronous: bool = False


@dataclass(frozen=True, slots=True)
class Truth:
    """The server's log: a dict per request (see `llama_load.serving.simulated.read_log`), and what it measured of itself."""

    requests: list[dict[str, Any]]
    server: dict[str, Any]


@cache
def compiled() -> Path | None:
    """The program; None without a C compiler or Linux."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    program = Path(tempfile.mkdtemp(prefix="referee-")) / "server"
    subprocess.run([compiler, "-O2", "-o", str(program), str(SOURCE)], check=True)
    return program


@contextmanager
def serving(schedule: Schedule, log: Path) -> Iterator[str]:
    """The URL of a fresh server. It has written `log` when the block ends."""
    port = free_port()
    program = compiled()
    if program is not None:
        times = (schedule.first_token_ms, schedule.interval_ms, schedule.jitter_ms)
        core = max(os.sched_getaffinity(0)) if len(os.sched_getaffinity(0)) > 1 else -1
        words = [str(round(ms * 1000)) for ms in times]
        command = [str(program), str(port), str(log), *words, str(int(schedule.synchronous)), str(core)]
    else:
        command = [
            *("nice", sys.executable, "-m", "llama_load.cli.main", "serve", "--simulated", "--port", str(port), "--log", str(log)),
            *("--first-token-ms", str(schedule.first_token_ms), "--interval-ms", str(schedule.interval_ms)),
            *("--jitter-ms", str(schedule.jitter_ms)),
        ]
    process = _started(command, port, log)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(STOPS_WITHIN_S)


def _started(command: list[str], port: int, log: Path) -> subprocess.Popen[bytes]:
    with log.with_suffix(".out").open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + STARTS_WITHIN_S
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), STARTS_WITHIN_S):
            return process
        time.sleep(0.01)
    process.kill()
    process.wait()
    raise SystemExit(f"the server did not start: {log.with_suffix('.out').read_text(errors='replace')}")


def read_truth(log: Path) -> Truth:
    """The log of one run."""
    lines = [msgspec.json.decode(line) for line in log.read_bytes().splitlines()]
    server: dict[str, Any] = next((line["server"] for line in lines if "server" in line), {})
    return Truth([line for line in lines if "server" not in line], server)
