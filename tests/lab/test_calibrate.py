"""What a calibration says, and that it is measured for real."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from llama_load.cli.main import main
from llama_load.ground.errors import RunError, UsageError
from llama_load.lab.calibrate import calibrate, measure, parse_load
from llama_load.loadgen.preflight.calibration import (
    Calibration,
    Step,
    client_rows,
    last_calibration,
    save,
)

FOUND = Calibration(
    "20261121",
    "here",
    2,
    50,
    [
        Step(100, 0.2, 0.2),
        Step(200, 0.8, 0.4),
        Step(400, 3.0, 0.7),
        Step(800, 90.0, 1.0),
    ],
)


def test_what_is_carried_ends_with_the_first_step_beyond_the_limit() -> None:
    assert (FOUND.carried(1.0), FOUND.carried(5.0)) == (200, 400)
    lucky = Calibration("", "", 1, 50, [Step(100, 9.0, None), Step(200, 0.1, None)])
    assert lucky.carried(5.0) == 0


def test_workers_for_a_load() -> None:
    """400 streams of 50 tok/s are 20 000 tok/s a worker; 2000 x 50 are five times that, 2001 x 50
    more."""
    assert FOUND.workers_for(2000, 50) == 5
    assert FOUND.workers_for(2001, 50) == 6
    assert FOUND.workers_for(100, 20, limit_ms=1.0) == 1
    assert Calibration("", "", 1, 50, []).workers_for(1, 1) is None


def test_a_calibration_is_kept_for_this_machine_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os
    import platform

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert last_calibration() is None
    mine = Calibration("20261121", platform.node(), os.cpu_count(), 50, FOUND.steps)
    save(mine)
    assert last_calibration() == mine
    save(FOUND)
    assert last_calibration() is None


def readings(*found: tuple[float, float]) -> Callable[[int], Step]:
    """One reading after the other: its error in ms, and what others used."""
    left = iter(found)
    return lambda streams: Step(streams, (each := next(left))[0], 0.5, each[1])


def found_by(
    *found: tuple[float, float], streams: Sequence[int] = (25, 50, 100)
) -> list[tuple[int, float]]:
    calibration = calibrate(lambda _: None, streams, readings(*found), busy=lambda: 0.0)
    return [(step.streams, step.ttft_error_p99_ms) for step in calibration.steps]


def test_a_bad_reading_is_repeated_and_the_best_counts() -> None:
    """Others can only make it worse. Three bad ones on a quiet machine are its limit."""
    assert found_by((90.0, 0.5), (0.3, 0.5), (0.4, 0.0), (4.0, 0.0)) == [
        (25, 0.3),
        (50, 0.4),
        (100, 4.0),
    ]
    assert found_by((0.3, 0.0), (9.0, 0.0), (8.0, 0.6), (7.0, 0.6)) == [
        (25, 0.3),
        (50, 7.0),
    ]


def test_what_others_may_have_spoilt_is_not_kept() -> None:
    """What was carried is certain whatever others did; that more is not carried is not, and nothing
    at all is an error."""
    assert found_by((0.3, 0.6), (9.0, 0.6), (8.0, 0.6), (7.0, 0.6)) == [(25, 0.3)]
    with pytest.raises(RunError, match="no result was certain or kept"):
        found_by((9.0, 0.6), (8.0, 0.6), (7.0, 0.6))


def test_a_busy_machine_is_not_calibrated(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for a quiet one first."""
    monkeypatch.setattr("llama_load.lab.calibrate.QUIET_WITHIN_S", 0.0)
    with pytest.raises(RunError, match="other programs use 80% of this machine"):
        calibrate(lambda _: None, (25,), readings(), busy=lambda: 0.8)
    shares = iter((0.8, 0.5, 0.0))
    monkeypatch.setattr("llama_load.lab.calibrate.QUIET_WITHIN_S", 60.0)
    assert (
        calibrate(
            lambda _: None, (25,), readings((0.1, 0.0)), busy=lambda: next(shares)
        ).carried(1.0)
        == 25
    )


def test_the_preflight_never_judges_a_machine_by_nothing() -> None:
    """A calibration in which not even the first step held says that it is to be repeated."""
    (row,) = client_rows(Calibration("", "", 2, 50, [Step(25, 90.0, 0.2)]), 8, 1)
    assert "repeat llama-load calibrate while nothing else runs" in row.value
    assert client_rows(FOUND, 400, 1)[0].level == "ok"
    assert "need --processes 2" in client_rows(FOUND, 401, 1)[0].value


def test_a_load_is_read() -> None:
    assert parse_load("2000x50") == (2000, 50.0)
    assert parse_load("300") == (300, 50.0)
    for wrong in ("x", "0x50", "ax3", "5x-1"):
        with pytest.raises(UsageError, match="--for must be"):
            parse_load(wrong)


@pytest.mark.heavy
def test_a_step_is_measured_against_the_servers_log() -> None:
    """8 streams: whatever the machine does, every request is there and the error is a number.
    Catches a calibration that gives no number where it runs for real."""
    step = measure(8)
    assert step.streams == 8
    assert 0 <= step.ttft_error_p99_ms < 1000
    assert step.core_busy is None or step.core_busy >= 0


def test_nonsense_is_refused_before_anything_is_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["calibrate", "--for", "many"]) == 2
    assert "--for must be STREAMSxTOKENS_PER_SECOND" in capsys.readouterr().err
