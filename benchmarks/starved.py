"""A server that uses every core of the client's machine: the same run at normal and at real-time
priority.

    .venv/bin/python -m benchmarks.starved [--repeat 3] [--users 4]        # about 10 s a run

The embedded llama-server computes on as many threads as there are cores, which spin while they
wait. The runs alternate. Needs permission for real-time priority (ulimit -r 1).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import heading
from llama_load.servers.kinds import ServerSpec
from llama_load.servers.serving.launch import serving

TOKENS, REQUESTS = 64, 40
SERVER = ServerSpec(args=("-t", str(os.cpu_count() or 1)))  # on every core
COLUMNS = (
    "client priority",
    "waited for a core",
    "longest (ms)",
    "loop lag p99 (ms)",
    "merged tokens",
    "mean TTFT (ms)",
    "verdict",
)


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--users", type=int, default=4)
    arguments = parser.parse_args()
    print(heading())
    print(f"{arguments.users} users, {REQUESTS} answers of {TOKENS} tokens\n")
    print(f"| {' | '.join(COLUMNS)} |\n|---|{'---:|' * (len(COLUMNS) - 2)}---|")
    for _ in range(arguments.repeat):
        for priority in ("normal", "auto"):
            print(f"| {' | '.join(measure(priority, arguments.users))} |", flush=True)


def measure(priority: str, users: int) -> list[str]:
    """A row: one run with --client-priority `priority`."""
    with tempfile.TemporaryDirectory() as name, serving(SERVER, Path(name)) as server:
        run = Path(name) / "run"
        command = [
            sys.executable,
            "-m",
            "locust",
            "--headless",
            "--host",
            server.url,
            "--loglevel",
            "ERROR",
            "-f",
        ]
        command += [
            "locustfiles/sharegpt_chat.py",
            "-u",
            str(users),
            "--num-prompts",
            str(REQUESTS),
            "--max-tokens",
            str(TOKENS),
        ]
        command += [
            "--ignore-eos",
            "--client-priority",
            priority,
            "--run-dir",
            str(run),
            "--no-report-html",
        ]
        subprocess.run(
            command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        (worker,) = json.loads((run / "run.json").read_text())["workers"]
        summary = json.loads((run / "summary.json").read_text())
    checks = {
        check["name"]: check["value"]
        for check in summary["llama_load"]["verdict"]["checks"]
    }
    return [
        str(worker["priority"]),
        f"{worker['core_wait_ratio']:.1%}",
        f"{worker['core_wait_longest_ms']:.1f}",
        f"{worker['loop_lag_p99_ms']:.1f}",
        f"{checks['merged_ratio']:.1%}",
        f"{summary['mean_ttft_ms']:.1f}",
        ", ".join(summary["llama_load"]["verdict"]["words"]),
    ]


if __name__ == "__main__":
    main()
