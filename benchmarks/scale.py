"""Scaling over workers: a closed loop takes the same time on one, two and five; two processes carry
twice the streams of one.

.venv/bin/python -m benchmarks.scale
"""

from __future__ import annotations

import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Bench, bench, heading, headless_chat, pair
from llama_load.analysis.statistics.timing_error import COLUMNS, errors_ms
from llama_load.run_folder import Run, load_run

USERS, PROMPTS, TOKENS, TOK_PER_S = 40, 400, 50, 50
STREAMS_EACH = 150  # two cores have to carry both clients and both servers


def run(folder: Path, servers: list[Bench], workers: int, *load: str) -> Run:
    """One run with this many worker processes against these servers."""
    command = headless_chat()
    command += [
        "--host",
        ",".join(server.server.url for server in servers),
        "--max-tokens",
        str(TOKENS),
        "--loglevel",
        "ERROR",
    ]
    command += ["--run-dir", str(folder / "run"), *load]
    if workers > 1:
        command += ["--processes", str(workers)]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=folder, check=False
    )
    if not (folder / "run" / "summary.json").exists():
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return load_run(folder / "run")


def span_s(found: Run) -> float:
    """First start to last end of the measured requests, s."""
    measured = found.records.measured()
    return (
        float(
            measured.instants("ended_mono_ns").max()
            - measured.instants("started_mono_ns").min()
        )
        / 1e9
    )


def durations() -> None:
    """The same prompts, users and server with an increasing number of workers."""
    print(
        f"| workers | duration of {PROMPTS} requests, {USERS} at a time (s) | to one worker's | requests of each worker |"
    )
    print("|---:|---:|---:|---|")
    alone: float | None = None
    for workers in (1, 2, 5):
        with (
            tempfile.TemporaryDirectory() as name,
            bench("--jitter-ms", "5", "--interval-ms", str(1000 / TOK_PER_S)) as server,
        ):
            found = run(
                Path(name),
                [server],
                workers,
                "-u",
                str(USERS),
                "--num-prompts",
                str(PROMPTS),
            )
        counts = found.records.measured().column("worker").value_counts().to_pylist()
        shares = ", ".join(str(each["counts"]) for each in counts)
        alone = alone or span_s(found)
        print(
            f"| {workers} | {span_s(found):.2f} | {span_s(found) / alone:.3f} | {shares} |",
            flush=True,
        )


def streams() -> None:
    """Streams on one process, and twice as many on two."""
    print(
        f"\n| processes | streams x {TOK_PER_S} tok/s | tokens/s | TTFT error p50 / p99 (ms) | ITL error p50 / p99 (ms) |"
    )
    print("|---:|---:|---:|---:|---:|")
    for processes in (1, 2):
        with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
            servers = [
                stack.enter_context(bench("--interval-ms", str(1000 / TOK_PER_S)))
                for _ in range(processes)
            ]
            users = processes * STREAMS_EACH
            found = run(
                Path(name),
                servers,
                processes,
                "-u",
                str(users),
                "--num-prompts",
                str(12 * users),
            )
            truth: list[dict[str, Any]] = [
                row for server in servers for row in server.truth()
            ]
            ok = found.records.measured().ok()
            ttft, itl = errors_ms(ok.select(COLUMNS).to_pylist(), truth)
            tokens = float(ok.numbers("output_tokens").sum()) / span_s(found)
        print(
            f"| {processes} | {users} | {tokens:.0f} | {pair(np.abs(ttft))} | {pair(np.abs(itl))} |",
            flush=True,
        )


if __name__ == "__main__":
    print(heading())
    durations()
    streams()
