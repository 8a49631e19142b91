"""Client cost and truth, side by side: gevent that only counts, plain Locust HttpUser, llama-load through Locust.

    make bench                    # 64, 400 and 800 streams of 50 tokens/s, best of three
    .venv/bin/python -m benchmarks.clients --streams 400 --repeat 1

All against the simulated server on the same machine; TTFT and ITL are held against its log. CPU a token is the client
process's user and system time, once from the first request on, once with start-up and report.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from llama_load.serving.process import free_port, start
from llama_load.serving.simulated import read_log

HERE = Path(__file__).resolve().parent
TOKENS = 200
ROUNDS = 2  # requests a stream
ENDS_WITHIN_S = 180
CLIENTS = ("gevent floor", "HttpUser", "llama-load")


@dataclass(frozen=True)
class Figures:
    """One run of one client: us of CPU a token, errors in ms."""

    cpu_us: float
    whole_cpu_us: float
    ttft: tuple[float, float] | None
    itl: tuple[float, float] | None


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, nargs="+", default=[64, 400, 800])
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    print(f"{time.strftime('%Y-%m-%d')}, {platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    print(
        "| streams x 50 tok/s | client | CPU us/token | with start-up and report | TTFT error p50 / p99 (ms) | ITL error p50 / p99 (ms) |"
    )
    print("|---:|---|---:|---:|---:|---:|")
    for streams in arguments.streams:
        for client in CLIENTS:
            runs = [measure(client, streams) for _ in range(arguments.repeat)]
            best = min(runs, key=lambda run: run.cpu_us)
            errors = [
                f"{min(pair[0] for pair in pairs):.2f} / {min(pair[1] for pair in pairs):.2f}" if pairs else ""
                for pairs in ([r.ttft for r in runs if r.ttft], [r.itl for r in runs if r.itl])
            ]
            row = [str(streams), client, f"{best.cpu_us:.1f}", f"{best.whole_cpu_us:.1f}", *errors]
            print(f"| {' | '.join(row)} |", flush=True)


def measure(client: str, streams: int) -> Figures:
    """One run of one client against a fresh simulated server."""
    requests = streams * ROUNDS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        port = free_port()
        log = folder / "truth.jsonl"
        serve = [sys.executable, "-m", "llama_load.cli", "serve", "--simulated", "--port", str(port), "--log", str(log)]
        server = start(serve, f"http://127.0.0.1:{port}", folder / "server.out")
        locust = [
            sys.executable,
            "-m",
            "locust",
            "--headless",
            "--host",
            server.url,
            "-u",
            str(streams),
            "--loglevel",
            "ERROR",
            "-f",
        ]
        command = {
            "gevent floor": [sys.executable, str(HERE / "gevent_floor.py"), str(port), str(streams), str(requests), str(TOKENS)],
            "HttpUser": [*locust, str(HERE / "http_user.py"), "-r", str(streams), "--only-summary"],
            "llama-load": [
                *locust,
                str(HERE / "llama_load_user.py"),
                "--num-prompts",
                str(requests),
                "--run-dir",
                str(folder / "run"),
            ],
        }[client]
        env = os.environ | {"BENCH_OUT": str(folder / "out.json"), "BENCH_REQUESTS": str(requests), "BENCH_TOKENS": str(TOKENS)}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        process.wait(ENDS_WITHIN_S)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        whole_cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        server.stop()
        out = json.loads((folder / "out.json").read_text())
        rows = out["rows"]
        if client == "llama-load":
            table = pq.read_table(folder / "run" / "requests.parquet", columns=["request_id", "ttft_ms", "itl_ms", "warmup"])
            rows = [row for row in table.to_pylist() if not row["warmup"]]
        tokens = requests * TOKENS
        ttft, itl = errors(rows, log) if rows else (None, None)
        return Figures(out["cpu_s"] / tokens * 1e6, whole_cpu_s / tokens * 1e6, ttft, itl)


def errors(rows: list[dict], log: Path) -> tuple[tuple[float, float], tuple[float, float]]:
    """Absolute errors of TTFT and ITL against the server's log: (p50, p99) each, ms."""
    truth = {entry["request_id"]: entry for entry in read_log(log)}
    ttft, itl = [], []
    for row in rows:
        entry = truth[row["request_id"]]
        sent = np.array(entry["sent_mono_ns"]) / 1e6
        ttft.append(abs(row["ttft_ms"] - (sent[0] - entry["received_mono_ns"] / 1e6)))
        if len(row["itl_ms"]) == len(sent) - 1:
            itl.append(np.abs(np.array(row["itl_ms"]) - np.diff(sent)))
    gaps = np.concatenate(itl)
    return (
        (float(np.percentile(ttft, 50)), float(np.percentile(ttft, 99))),
        (float(np.percentile(gaps, 50)), float(np.percentile(gaps, 99))),
    )


if __name__ == "__main__":
    main()
