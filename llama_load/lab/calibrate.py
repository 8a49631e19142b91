"""How many streams one worker on this machine times accurately.

Increasing numbers of streams run against the simulated server, which logs when it received each
request and sent each token; a client is accurate while the p99 of its TTFT error stays small.
Server and client share the machine here, unlike in a real test: the result is a lower bound. Other
programs can only increase the error. So the machine must be quiet before the first step, a step
beyond the limit is repeated, and its best reading counts; a step that other programs may have
disturbed each time is discarded.
"""

from __future__ import annotations

import math
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import psutil

from llama_load.analysis.statistics.timing_error import COLUMNS, errors_ms
from llama_load.ground.bundled import bundled
from llama_load.ground.errors import RunError, UsageError
from llama_load.ground.own_modules import module_command
from llama_load.loadgen.preflight.calibration import (
    LOOSE_MS,
    TOK_PER_S,
    Calibration,
    Step,
)
from llama_load.run_folder import load_run
from llama_load.run_folder.observed.worker_health import WorkerHealth
from llama_load.servers.local_ports import free_port
from llama_load.servers.serving.launch import start
from llama_load.servers.serving.simulated import read_log

TOKENS = 100
STREAMS = (25, 50, 100, 200, 400, 600, 800, 1200, 1600)
LIMITS_MS = (1.0, LOOSE_MS)
ENDS_WITHIN_S = 120
READINGS = 3
# Share of all cores that other programs may use, before the first step and in a reading beyond the
# limit.
QUIET = 0.1
QUIET_WITHIN_S = 30.0
LOOK_S = 2.0
# Of a load to plan for: more is a typo.
MOST_STREAMS = 10**7
MOST_TOK_PER_S = 1e6


def calibrate(
    on_step: Callable[[Step], None],
    streams: Sequence[int] = STREAMS,
    read: Callable[[int], Step] | None = None,
    busy: Callable[[], float] | None = None,
) -> Calibration:
    """Measure until a step exceeds the loose limit.

    `on_step` gets every reading; `read` takes one; `busy` returns the share of the machine that
    other programs use (0 to 1). RunError: the machine is not quiet, or other programs made every
    result uncertain.
    """
    share = wait_for_quiet(QUIET_WITHIN_S, busy or others_busy)
    if share > QUIET:
        raise RunError(
            f"other programs use {share:.0%} of this machine, which would distort the calibration; "
            "stop them and calibrate again"
        )

    made = time.strftime("%Y%m%d-%H%M%S")
    calibration = Calibration(made, platform.node(), os.cpu_count(), TOK_PER_S)
    for count in streams:
        step, is_sure = best_of(count, read or measure, on_step)
        if not is_sure and calibration.steps:
            # Earlier steps are certain; that this one fails is not.
            break
        if not is_sure:
            raise RunError(
                f"other programs used {step.others_busy or 0:.0%} of this machine during the "
                "calibration, so no result was certain or kept; stop them and repeat it"
            )
        calibration.steps.append(step)
        if step.ttft_error_p99_ms > LOOSE_MS:
            break
    return calibration


def best_of(
    streams: int, read: Callable[[int], Step], on_step: Callable[[Step], None]
) -> tuple[Step, bool]:
    """The best reading of a step, and whether it is certain.

    It is if it is within the limit, or was beyond it each time on a quiet machine.
    """
    readings: list[Step] = []
    while len(readings) < READINGS:
        reading = read(streams)
        readings.append(reading)
        on_step(reading)
        if reading.ttft_error_p99_ms <= LOOSE_MS:
            break

    best = min(readings, key=lambda step: step.ttft_error_p99_ms)
    was_quiet = any((step.others_busy or 0.0) <= QUIET for step in readings)
    return best, best.ttft_error_p99_ms <= LOOSE_MS or was_quiet


def others_busy() -> float:
    """The share of all cores' time used, 0 to 1, measured over two seconds."""
    return float(psutil.cpu_percent(LOOK_S)) / 100


def wait_for_quiet(most_s: float, busy: Callable[[], float] = others_busy) -> float:
    """Wait until other programs use little of the machine, at most this long.

    Returns the share that they used last, 0 to 1.
    """
    deadline = time.monotonic() + most_s
    share = busy()
    while share > QUIET and time.monotonic() < deadline:
        share = busy()
    return share


def measure(streams: int) -> Step:
    """Two requests per stream. RunError: the run fails."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        port = free_port()
        log = folder / "truth.jsonl"
        server = start(
            _server_command(port, log),
            f"http://127.0.0.1:{port}",
            folder / "server.log",
        )
        try:
            done = subprocess.run(
                _run_command(server.url, streams, folder / "run"),
                capture_output=True,
                text=True,
                timeout=ENDS_WITHIN_S,
                cwd=folder,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Step(streams, math.inf, None, 0.0)
        finally:
            server.stop()

        if not (folder / "run" / "run.json").exists():
            raise RunError(f"the calibration run failed: {done.stderr.strip()[-500:]}")
        run = load_run(folder / "run")
        health = run.manifest.workers[0]
        ok = run.records.measured().ok()
        if not len(ok):
            return Step(streams, math.inf, None, others_share(health))

        ttft_errors, _ = errors_ms(ok.select(COLUMNS).to_pylist(), read_log(log))
        p99_ms = float(np.percentile(np.abs(ttft_errors), 99))
        return Step(streams, p99_ms, health.core_busy, others_share(health))


def _server_command(port: int, log: Path) -> list[str]:
    """The simulated server, which logs what it did when."""
    # fmt: off
    return module_command(
        "llama_load.cli.main", "serve", "--simulated",
        "--port", str(port),
        "--log", str(log),
        "--interval-ms", str(1000 / TOK_PER_S),
    )
    # fmt: on


def _run_command(url: str, streams: int, folder: Path) -> list[str]:
    """A run of Locust with this many users."""
    # fmt: off
    return module_command(
        "locust", "-f", str(bundled("locustfiles/sharegpt_chat.py")),
        "--headless",
        "--host", url,
        "-u", str(streams),
        "--num-prompts", str(2 * streams),
        "--max-tokens", str(TOKENS),
        "--run-dir", str(folder),
        "--loglevel", "ERROR",
    )
    # fmt: on


def others_share(health: WorkerHealth) -> float | None:
    """Share of all cores' time used by neither client nor server; None if unknown."""
    if (
        health.machine_busy is None
        or health.own_share is None
        or health.server_share is None
    ):
        return None
    return max(0.0, health.machine_busy - health.own_share - health.server_share)


def parse_load(text: str) -> tuple[int, float]:
    """Read `2000x50`: streams, and tokens per second of each. UsageError: another format."""
    streams, _, speed = text.lower().partition("x")
    try:
        count = int(streams)
        tok_per_s = float(speed or TOK_PER_S)
        if 0 < count <= MOST_STREAMS and 0 < tok_per_s <= MOST_TOK_PER_S:
            return count, tok_per_s
    except ValueError:
        pass
    raise UsageError(
        f"--for must be STREAMSxTOKENS_PER_SECOND, such as 2000x50, got {text!r}"
    )
