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
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from llama_load.bundled import bundled
from llama_load.errors import RunError, UsageError
from llama_load.metrics.timing_error import COLUMNS, errors_ms
from llama_load.runs import PreflightRow, load_run
from llama_load.serving.model_maker import cache_folder
from llama_load.serving.process import free_port, start
from llama_load.serving.simulated import read_log

TOK_PER_S = 50  # of each stream: what one user of a good server sees
TOKENS = 100
STREAMS = (25, 50, 100, 200, 400, 600, 800, 1200, 1600)
LOOSE_MS = 5.0
LIMITS_MS = (1.0, LOOSE_MS)
ENDS_WITHIN_S = 120


@dataclass(frozen=True, slots=True)
class Step:
    """One load and what came of it: p99 of the absolute TTFT error, ms; the client's core, 0 to 1."""

    streams: int
    ttft_error_p99_ms: float
    core_busy: float | None


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was found, and where."""

    date: str
    machine: str
    cores: int | None
    tok_per_s_each: int
    steps: list[Step] = field(default_factory=list)

    def carried(self, limit_ms: float) -> int:
        """The most streams up to which every step stayed within the limit; 0 if not even the first did."""
        good = 0
        for step in self.steps:
            if step.ttft_error_p99_ms > limit_ms:
                break
            good = step.streams
        return good

    def workers_for(self, streams: int, tok_per_s_each: float, limit_ms: float = LOOSE_MS) -> int | None:
        """How many workers a load needs: tokens per second / what one worker carries; None if one carries nothing.

        400 streams of 50 tok/s carried are 20 000 tok/s; 2000 streams of 50 tok/s need 5 workers.
        """
        carried = self.carried(limit_ms) * self.tok_per_s_each
        return math.ceil(streams * tok_per_s_each / carried) if carried else None


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


def client_rows(calibration: Calibration | None, users: int | None, workers: int) -> list[PreflightRow]:
    """Whether this machine's workers carry so many streams, if that was ever measured (`llama-load calibrate`)."""
    if calibration is None or users is None:
        return []
    needed = calibration.workers_for(users, calibration.tok_per_s_each)
    carried = f"a worker here carries {calibration.carried(LOOSE_MS)} streams of {calibration.tok_per_s_each} tok/s truthfully"
    if needed is not None and needed <= workers:
        return [PreflightRow("client", carried)]
    more = f"use {needed} (--processes)" if needed else "use another machine"
    return [PreflightRow("client", f"{carried}: {workers} may be too few for {users}, {more}", "note")]


def save(calibration: Calibration) -> Path:
    """Write it where the preflight looks for it."""
    path = _path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(calibration), indent=1))
    return path


def last_calibration() -> Calibration | None:
    """The last calibration of this machine, if there is one."""
    try:
        found = msgspec.json.decode(_path().read_bytes(), type=Calibration)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found if found.machine == platform.node() and found.cores == os.cpu_count() else None


def _path() -> Path:
    return cache_folder() / "calibration.json"


def parse_load(text: str) -> tuple[int, float]:
    """Read `2000x50`: streams, and tokens per second of each. Raises UsageError with a sentence."""
    streams, _, speed = text.lower().partition("x")
    try:
        found = int(streams), float(speed or TOK_PER_S)
        if found[0] > 0 and found[1] > 0:
            return found
    except ValueError:
        pass
    raise UsageError(f"--for wants STREAMSxTOKENS_PER_SECOND, such as 2000x50, got {text!r}")
