"""A server that uses every core of the client's machine: the same run at normal and at real-time priority.

    .venv/bin/python -m benchmarks.starved [--repeat 3] [--users 4]        # about 10 s a run

The embedded llama-server computes on as many threads as there are cores, which spin while they wait. The runs alternate.
Needs permission for real-time priority (ulimit -r 1).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.harness import heading
from llama_load.bundled import bundled
from llama_load.serving.model_maker import ModelSize, cached_model
from llama_load.serving.process import EmbeddedServer, free_port

READY_WITHIN_S = 60
TOKENS, REQUESTS = 64, 40
MODEL = ModelSize()
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
    with tempfile.TemporaryDirectory() as name, greedy_server(Path(name)) as url:
        run = Path(name) / "run"
        command = [sys.executable, "-m", "locust", "--headless", "--host", url, "--loglevel", "ERROR", "-f"]
        command += ["locustfiles/sharegpt_chat.py", "-u", str(users), "--num-prompts", str(REQUESTS), "--max-tokens", str(TOKENS)]
        command += ["--ignore-eos", "--client-priority", priority, "--run-dir", str(run), "--no-report-html"]
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        (worker,) = json.loads((run / "run.json").read_text())["workers"]
        summary = json.loads((run / "summary.json").read_text())
    checks = {check["name"]: check["value"] for check in summary["llama_load"]["verdict"]["checks"]}
    return [
        str(worker["priority"]),
        f"{worker['core_wait_ratio']:.1%}",
        f"{worker['core_wait_longest_ms']:.1f}",
        f"{worker['loop_lag_p99_ms']:.1f}",
        f"{checks['merged_ratio']:.1%}",
        f"{summary['mean_ttft_ms']:.1f}",
        ", ".join(summary["llama_load"]["verdict"]["words"]),
    ]


@contextmanager
def greedy_server(folder: Path) -> Iterator[str]:
    """The embedded llama-server on every core. (`llama_load.serving.process.start` would leave one to the client.)"""
    port = free_port()
    server = EmbeddedServer(cached_model(MODEL, bundled("datasets/sharegpt_sample.json")), threads=os.cpu_count() or 1)
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(server.command(port), stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < until:
            with suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=1):
                break
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait(10)


if __name__ == "__main__":
    main()
