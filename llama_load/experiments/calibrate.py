"""How many streams one worker on this machine carries truthfully: more and more of them against the simulated server.

The server's log says when it received each request and when it sent each token; a client is true while the p99 of its TTFT
error stays small. Server and client share the machine here, which a real test does not do: the result is a lower bound.
"""

from __future__ import annotations

import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from llama_load.bundled import bundled
from llama_load.errors import RunError, UsageError
from llama_load.metrics.timing_error import COLUMNS, errors_ms
from llama_load.preflight.calibration import LOOSE_MS, TOK_PER_S, Calibration, Step
from llama_load.runs import load_run
from llama_load.serving.process import free_port, start
from llama_load.serving.simulated import read_log

TOKENS = 100
STREAMS = (25, 50, 100, 200, 400, 600, 800, 1200, 1600)
LIMITS_MS = (1.0, LOOSE_MS)
ENDS_WITHIN_S = 120


def calibrate(on_step: Callable[[Step], None], streams: Sequence[int] = STREAMS) -> Calibration:
    """Measure until a step is off by more than the loose limit twice in a row. `on_step` hears of every step."""
    calibration = Calibration(time.strftime("%Y%m%d-%H%M%S"), platform.node(), os.cpu_count(), TOK_PER_S)
    for count in streams:
        step = measure(count)
        on_step(step)
        calibration.steps.append(step)
        if len(calibration.steps) > 1 and all(past.ttft_error_p99_ms > LOOSE_MS for past in calibration.steps[-2:]):
            break
    return calibration


def measure(streams: int) -> Step:
    """Two requests a stream. Raises RunError if the run fails."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        port, log = free_port(), folder / "truth.jsonl"
        serve = [sys.executable, "-m", "llama_load.cli", "serve", "--simulated", "--port", str(port), "--log", str(log)]
        serve += ["--interval-ms", str(1000 / TOK_PER_S)]
        server = start(serve, f"http://127.0.0.1:{port}", folder / "server.log")
        command = [sys.executable, "-m", "locust", "-f", str(bundled("locustfiles/sharegpt_chat.py")), "--headless"]
        command += ["--host", server.url, "-u", str(streams), "--num-prompts", str(2 * streams), "--max-tokens", str(TOKENS)]
        command += ["--run-dir", str(folder / "run"), "--loglevel", "ERROR"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=ENDS_WITHIN_S, cwd=folder, check=False)
        except subprocess.TimeoutExpired:
            return Step(streams, math.inf, None)
        finally:
            server.stop()
        if not (folder / "run" / "run.json").exists():
            raise RunError(f"the calibration run failed: {done.stderr.strip()[-500:]}")
        run = load_run(folder / "run")
        ok = run.records.measured().ok()
        if not len(ok):
            return Step(streams, math.inf, None)
        ttft, _ = errors_ms(ok.table.select(COLUMNS).to_pylist(), read_log(log))
        return Step(streams, float(np.percentile(np.abs(ttft), 99)), run.manifest.workers[0].core_busy)


MOST_STREAMS, MOST_TOK_PER_S = 10**7, 1e6


def parse_load(text: str) -> tuple[int, float]:
    """Read `2000x50`: streams, and tokens per second of each. Raises UsageError with a sentence."""
    streams, _, speed = text.lower().partition("x")
    try:
        found = int(streams), float(speed or TOK_PER_S)
        if 0 < found[0] <= MOST_STREAMS and 0 < found[1] <= MOST_TOK_PER_S:
            return found
    except ValueError:
        pass
    raise UsageError(f"--for wants STREAMSxTOKENS_PER_SECOND, such as 2000x50, got {text!r}")
