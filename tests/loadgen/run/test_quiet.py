"""A timed run is repeated only where the machine was not quiet."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import quiet
from tests.quiet import TRIES, undisturbed


def attempts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stolen: list[float], good: int
) -> list[str]:
    """The folders of the runs when the hypervisor takes this share during each run, and run number
    `good` is the first to pass."""
    read = iter([value for share in stolen for value in (0.0, share * 1e9)])
    monkeypatch.setattr(quiet, "stolen_s", lambda: next(read))
    monkeypatch.setattr(quiet, "others_s", lambda: 0.0)
    monkeypatch.setattr(quiet, "PAUSE_S", 1e9)
    begun: list[str] = []

    def run(folder: Path) -> int:
        begun.append(folder.name)
        return len(begun)

    def check(number: int) -> None:
        assert number >= good

    try:
        undisturbed(run, check, tmp_path)
    except AssertionError as error:
        begun.append(error.__notes__[-1])
    return begun


def test_what_fails_on_a_quiet_machine_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert attempts(tmp_path, monkeypatch, [0.0], good=2) == [
        "run-1",
        f"attempt 1 of {TRIES}: the machine was quiet",
    ]


def test_what_fails_on_a_disturbed_machine_is_repeated_until_it_was_quiet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert attempts(tmp_path, monkeypatch, [1.0, 1.0], good=2) == ["run-1", "run-2"]
    assert attempts(tmp_path, monkeypatch, [1.0, 0.0], good=3)[2:] == [
        f"attempt 2 of {TRIES}: the machine was quiet"
    ]


def test_what_fails_every_time_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = attempts(tmp_path, monkeypatch, [1.0] * TRIES, good=9)
    assert len(found) == TRIES + 1
    assert "the hypervisor took" in found[-1]


def test_what_must_always_hold_is_not_repeated(tmp_path: Path) -> None:
    begun = []

    def run(folder: Path) -> None:
        begun.append(folder)
        raise AssertionError("a request is missing")

    with pytest.raises(AssertionError, match="a request is missing"):
        undisturbed(run, lambda _: None, tmp_path)
    assert len(begun) == 1
