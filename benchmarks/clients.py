"""CPU cost and timing error of three clients: plain gevent that only counts bytes, Locust's HttpUser, llama-load.

    make bench                    # 64, 400 and 800 streams of 50 tokens/s, best of three
    .venv/bin/python -m benchmarks.clients --streams 400 --repeat 1

All run against the simulated server on the same machine; TTFT and ITL are compared with its log. CPU per token is the client
process's user and system time, once from the first request on, once including start-up and report.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.harness import Cost, bench, heading, pair
from llama_load.metrics.timing_error import COLUMNS as TRUTH_COLUMNS
from llama_load.metrics.timing_error import errors_ms
from llama_load.runs import load_run

HERE = Path(__file__).resolve().parent
TOKENS = 200
ROUNDS = 2  # requests a stream
CLIENTS = ("gevent floor", "HttpUser", "llama-load")
COLUMNS = (
    *("streams x 50 tok/s", "client", "CPU us/token", "with start-up and report", "TTFT error p50 / p99 (ms)"),
    *("ITL error p50 / p99 (ms)", "first request after (s)", "memory (MiB)", "loop lag p99 (ms)"),
)


@dataclass(frozen=True)
class Figures:
    """One run of one client: us of CPU a token from the first request on; absolute errors in ms; loop lag in ms."""

    cpu_us: float
    cost: Cost
    tokens: int
    ttft: Sequence[float]
    itl: Sequence[float]
    lag_ms: float | None


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, nargs="+", default=[64, 400, 800])
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    print(heading())
    print(f"| {' | '.join(COLUMNS)} |")
    print("|---:|---|" + "---:|" * (len(COLUMNS) - 2))
    for streams in arguments.streams:
        for client in CLIENTS:
            runs = [measure(client, streams) for _ in range(arguments.repeat)]
            best = min(runs, key=lambda run: run.cpu_us)
            truest = min(runs, key=lambda run: float(np.percentile(run.ttft, 99)) if len(run.ttft) else 0.0)
            row = [
                str(streams),
                client,
                f"{best.cpu_us:.1f}",
                f"{best.cost.cpu_s / best.tokens * 1e6:.1f}",
                pair(truest.ttft) if len(truest.ttft) else "",
                pair(truest.itl) if len(truest.itl) else "",
                f"{min(run.cost.startup_s for run in runs):.2f}",
                f"{min(run.cost.memory_mib for run in runs):.0f}",
                "" if truest.lag_ms is None else f"{truest.lag_ms:.2f}",
            ]
            print(f"| {' | '.join(row)} |", flush=True)


def measure(client: str, streams: int) -> Figures:
    """One run of one client."""
    requests = streams * ROUNDS
    with bench() as against:
        out, run = against.folder / "out.json", against.folder / "run"
        locust = [sys.executable, "-m", "locust", "--headless", "--host", against.server.url, "--loglevel", "ERROR"]
        port = against.server.url.rpartition(":")[2]
        command = {
            "gevent floor": [sys.executable, str(HERE / "gevent_floor.py"), port, str(streams), str(requests), str(TOKENS)],
            "HttpUser": [
                *(*locust, "-f", str(HERE / "http_user.py"), "--only-summary"),
                *("-u", str(streams), "-r", str(streams)),
            ],
            "llama-load": [
                *(*locust, "-f", str(HERE / "llama_load_user.py"), "-u", str(streams)),
                *("--num-prompts", str(requests), "--run-dir", str(run)),
            ],
        }[client]
        cost = against.run(command, {"BENCH_OUT": str(out), "BENCH_REQUESTS": str(requests), "BENCH_TOKENS": str(TOKENS)})
        result = json.loads(out.read_text())
        rows, lag_ms = result["rows"], None
        if client == "llama-load":
            rows = load_run(run).records.measured().select(TRUTH_COLUMNS).to_pylist()
            lag_ms = json.loads((run / "run.json").read_text())["workers"][0]["loop_lag_p99_ms"]
        tokens = requests * TOKENS
        ttft, itl = map(np.abs, errors_ms(rows, against.truth()))
        return Figures(result["cpu_s"] / tokens * 1e6, cost, tokens, ttft, itl, lag_ms)


if __name__ == "__main__":
    main()
