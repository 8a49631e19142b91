"""What sampling costs the client: the same load without telemetry, with it, and with a vLLM page of
metrics scraped beside it.

.venv/bin/python -m benchmarks.telemetry [--streams 64] [--repeat 2]

The runs alternate against the simulated server on the same machine. TTFT and ITL are compared with
its log; CPU is the client process's, from the first request on; the sampler's is its own figure.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.clients import HERE, ROUNDS, TOKENS
from benchmarks.harness import bench, heading, pair
from llama_load.analysis.statistics.timing_error import COLUMNS as TRUTH_COLUMNS
from llama_load.analysis.statistics.timing_error import errors_ms
from llama_load.run_folder import load_run
from llama_load.run_folder.telemetry_file import TELEMETRY
from tests.json_server import json_server

PAGE = HERE.parent / "tests" / "data" / "transcripts" / "vllm_metrics.txt"
WAYS = (
    ("off", "0", False),
    ("every 1 s", "1", False),
    ("every 1 s, a vLLM page", "1", True),
    ("every 0.1 s, a vLLM page", "0.1", True),
)
COLUMNS = (
    *(
        "telemetry",
        "client CPU us/token",
        "TTFT error p50 / p99 (ms)",
        "ITL error p50 / p99 (ms)",
        "loop lag p99 (ms)",
    ),
    *("sampler (cores)", "file (kB)"),
)


@dataclass(frozen=True)
class Figures:
    cpu_us: float
    ttft: Sequence[float]
    itl: Sequence[float]
    lag_ms: float
    sampler_cores: float
    file_kb: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=2)
    arguments = parser.parse_args()
    print(heading())
    print(
        f"{arguments.streams} streams of 50 tok/s; least CPU and least error of {arguments.repeat} runs\n"
    )
    print(f"| {' | '.join(COLUMNS)} |\n|---|{'---:|' * (len(COLUMNS) - 1)}")
    found: dict[str, list[Figures]] = {name: [] for name, _, _ in WAYS}
    for _ in range(arguments.repeat):
        for name, interval_s, scrapes in WAYS:
            found[name].append(measure(arguments.streams, interval_s, scrapes=scrapes))
    for name, runs in found.items():
        truest = min(runs, key=lambda run: float(np.percentile(run.ttft, 99)))
        cells = [
            name,
            f"{min(run.cpu_us for run in runs):.1f}",
            pair(truest.ttft),
            pair(truest.itl),
            f"{truest.lag_ms:.2f}",
        ]
        cells += [
            f"{max(run.sampler_cores for run in runs):.4f}",
            f"{runs[0].file_kb:.0f}",
        ]
        print(f"| {' | '.join(cells)} |", flush=True)


def measure(streams: int, interval_s: str, *, scrapes: bool) -> Figures:
    requests = streams * ROUNDS
    with bench() as against, json_server({"/metrics": PAGE.read_text()}) as other:
        out, run = against.folder / "out.json", against.folder / "run"
        command = [
            sys.executable,
            "-m",
            "locust",
            "--headless",
            "--host",
            against.server.url,
            "--loglevel",
            "ERROR",
        ]
        command += [
            "-f",
            str(HERE / "llama_load_user.py"),
            "-u",
            str(streams),
            "--num-prompts",
            str(requests),
        ]
        command += [
            "--run-dir",
            str(run),
            "--telemetry-interval",
            interval_s,
            *(["--scrape", other.url] if scrapes else []),
        ]
        against.run(
            command,
            {
                "BENCH_OUT": str(out),
                "BENCH_REQUESTS": str(requests),
                "BENCH_TOKENS": str(TOKENS),
            },
        )
        rows = load_run(run).records.measured().select(TRUTH_COLUMNS).to_pylist()
        ttft, itl = map(np.abs, errors_ms(rows, against.truth()))
        told = json.loads((run / "summary.json").read_text())["llama_load"]["telemetry"]
        file = run / TELEMETRY
        return Figures(
            cpu_us=json.loads(out.read_text())["cpu_s"] / (requests * TOKENS) * 1e6,
            ttft=ttft,
            itl=itl,
            lag_ms=json.loads((run / "run.json").read_text())["workers"][0][
                "loop_lag_p99_ms"
            ],
            sampler_cores=told["telemetry_cpu_cores"] or 0.0,
            file_kb=file.stat().st_size / 1e3 if Path(file).is_file() else 0.0,
        )


if __name__ == "__main__":
    main()
