"""Poisson arrivals as the server gets them: asked for 40 a second, with answers that take a second.

A Poisson process has gaps with a coefficient of variation of 1 and no autocorrelation, and counts whose variance is their mean.

.venv/bin/python -m benchmarks.arrivals
"""

from __future__ import annotations

import sys

import numpy as np

from benchmarks.harness import Bench, bench, heading, pair
from llama_load.bundled import bundled
from llama_load.runs import load_run

RATE, SECONDS, BASELINE_USERS = 40, 30, 20
SERVER = ("--first-token-ms", "980", "--interval-ms", "20")
COUNTED_S = 0.5  # counts are taken in windows of this length


def row(name: str, server: Bench, late: str = "") -> None:
    """What the server's log says of the middle 90 % of the requests."""
    received_s = np.sort([entry["received_mono_ns"] for entry in server.truth()]) / 1e9
    received_s = received_s[len(received_s) // 20 : -len(received_s) // 20]
    gaps = np.diff(received_s)
    counts = np.bincount(((received_s - received_s[0]) / COUNTED_S).astype(int))[:-1]
    rate, cv = 1 / gaps.mean(), gaps.std() / gaps.mean()
    lag = np.corrcoef(gaps[:-1], gaps[1:])[0, 1]
    print(f"| {name} | {rate:.1f} | {cv:.2f} | {lag:+.2f} | {counts.var() / counts.mean():.2f} | {late} |", flush=True)


def baseline() -> None:
    """Users who wait, which is the nearest thing in Locust alone."""
    command = [sys.executable, "-m", "locust", "-f", str(bundled("benchmarks/poisson_users.py")), "--headless"]
    with bench(*SERVER) as server:
        command += [
            "-u",
            str(BASELINE_USERS),
            "-r",
            str(BASELINE_USERS),
            "-t",
            f"{SECONDS}s",
            "--host",
            server.server.url,
            "--loglevel",
            "ERROR",
        ]
        server.run(command, {"BENCH_USERS": str(BASELINE_USERS), "BENCH_RATE": str(RATE)})
        row(f"Locust, {BASELINE_USERS} users with exponential waits", server)


def ours(workers: int) -> None:
    """An open loop on so many workers."""
    command = [sys.executable, "-m", "locust", "-f", str(bundled("locustfiles/sharegpt_chat.py")), "--headless", "--warmup", "0"]
    command += ["--request-rate", str(RATE), "-t", f"{SECONDS}s", "--max-tokens", "2", "--loglevel", "ERROR"]
    command += ["--processes", str(workers)] if workers > 1 else []
    with bench(*SERVER) as server:
        folder = server.folder / "run"
        server.run([*command, "--host", server.server.url, "--run-dir", str(folder)])
        late = load_run(folder).records.measured().numbers("late_ms")
        row(f"llama-load, {workers} worker{'s' if workers > 1 else ''}", server, pair(late))


if __name__ == "__main__":
    print(heading())
    print(
        f"| {RATE} requests/s asked for | requests/s | CV of gaps | lag-1 autocorrelation | variance/mean of counts | late p50 / p99 (ms) |"
    )
    print("|---|---:|---:|---:|---:|---:|")
    baseline()
    for workers in (1, 3):
        ours(workers)
