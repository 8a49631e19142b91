"""What a calibration says, and that it is measured for real."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from llama_load.errors import UsageError
from llama_load.experiments.calibrate import measure, parse_load
from llama_load.preflight.calibration import Calibration, Step, last_calibration, save
from tests.conftest import environment

FOUND = Calibration(
    "20261121", "here", 2, 50, [Step(100, 0.2, 0.2), Step(200, 0.8, 0.4), Step(400, 3.0, 0.7), Step(800, 90.0, 1.0)]
)


def test_what_is_carried_ends_with_the_first_step_beyond_the_limit() -> None:
    assert (FOUND.carried(1.0), FOUND.carried(5.0)) == (200, 400)
    lucky = Calibration("", "", 1, 50, [Step(100, 9.0, None), Step(200, 0.1, None)])
    assert lucky.carried(5.0) == 0


def test_workers_for_a_load() -> None:
    """400 streams of 50 tok/s are 20 000 tok/s a worker; 2000 x 50 are five times that, 2001 x 50 more."""
    assert FOUND.workers_for(2000, 50) == 5
    assert FOUND.workers_for(2001, 50) == 6
    assert FOUND.workers_for(100, 20, limit_ms=1.0) == 1
    assert Calibration("", "", 1, 50, []).workers_for(1, 1) is None


def test_a_calibration_is_kept_for_this_machine_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os
    import platform

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert last_calibration() is None
    mine = Calibration("20261121", platform.node(), os.cpu_count(), 50, FOUND.steps)
    save(mine)
    assert last_calibration() == mine
    save(FOUND)
    assert last_calibration() is None


def test_a_load_is_read() -> None:
    assert parse_load("2000x50") == (2000, 50.0)
    assert parse_load("300") == (300, 50.0)
    for wrong in ("x", "0x50", "ax3", "5x-1"):
        with pytest.raises(UsageError, match="--for wants"):
            parse_load(wrong)


@pytest.mark.heavy
def test_a_step_is_measured_against_the_servers_log() -> None:
    """8 streams: whatever the machine does, every request is there and the error is a number."""
    step = measure(8)
    assert step.streams == 8
    assert 0 <= step.ttft_error_p99_ms < 1000
    assert step.core_busy is None or step.core_busy >= 0


def test_nonsense_is_refused_before_anything_is_measured() -> None:
    command = [sys.executable, "-m", "llama_load.cli", "calibrate", "--for", "many"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False, timeout=30)
    assert done.returncode == 2
    assert "--for wants STREAMSxTOKENS_PER_SECOND" in done.stderr
