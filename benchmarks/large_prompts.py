"""The effect of prompts of 100 000 tokens and images of 4 MB on other streams of the same worker,
compared with short prompts.

.venv/bin/python -m benchmarks.large_prompts
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.harness import bench, heading, pair
from llama_load.ground.bundled import bundled
from llama_load.run_folder import load_run

USERS, REQUESTS, TOKENS = 64, 256, 100
LOADS = {
    "short questions": ("sharegpt_chat.py", []),
    "documents of 100 000 tokens": (
        "long_document.py",
        ["--document-tokens", "100000"],
    ),
    "PNG images of 4 MB": (
        "vision.py",
        ["--image-format", "png", "--image-size", "1450x1450"],
    ),
}


def main() -> None:
    """Measure and print."""
    print(heading())
    print(
        f"| {USERS} streams x 50 tok/s, every prompt | body (MB) | loop lag p99 / max (ms) | own delay p99 (ms) | first token stamped late p50 / p99 (ms) |"
    )
    print("|---|---:|---:|---:|---:|")
    for name, (file, flags) in LOADS.items():
        with (
            tempfile.TemporaryDirectory() as folder,
            bench("--jitter-ms", "5") as server,
        ):
            command = [
                sys.executable,
                "-m",
                "locust",
                "-f",
                str(bundled(f"locustfiles/{file}")),
                "--headless",
                "--loglevel",
                "ERROR",
            ]
            command += [
                "--host",
                server.server.url,
                "-u",
                str(USERS),
                "--num-prompts",
                str(REQUESTS),
                "--max-tokens",
                str(TOKENS),
            ]
            command += ["--run-dir", f"{folder}/run", *flags]
            done = subprocess.run(
                command, capture_output=True, text=True, cwd=folder, check=False
            )
            if not (Path(folder) / "run" / "summary.json").exists():
                raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
            run, truth = load_run(Path(folder) / "run"), server.truth()
            ok = run.records.measured().ok()
            sent_ns = {row["request_id"]: row["sent_mono_ns"][0] for row in truth}
            late_ms = (
                ok.instants("first_token_mono_ns")
                - [sent_ns[name] for name in ok.strings("request_id")]
            ) / 1e6
            (health,) = run.manifest.workers
            megabytes = np.median([row["body_bytes"] for row in truth]) / 1e6
            delay = np.nanpercentile(ok.numbers("own_delay_ms"), 99)
            lag = f"{health.loop_lag_p99_ms:.2f} / {health.loop_lag_max_ms:.1f}"
        print(
            f"| {name} | {megabytes:.2f} | {lag} | {delay:.2f} | {pair(late_ms)} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
