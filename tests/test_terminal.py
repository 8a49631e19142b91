"""What people read goes out, or is dropped, but never raises: closed pipes, full disks, poor
encodings."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from llama_load.cli.main import main
from llama_load.outside.terminal import _closest_ascii, _safe
from tests.conftest import REPOSITORY, Simulated, environment, locust_command

SAMPLE = str(REPOSITORY / "datasets" / "sharegpt_sample.json")
CLI = ["llama_load.cli.main"]
# Plain lines, argparse's own text, a sentence on stderr with exit code 2. (A table of rich's is
# printed by a process that is really started: what it says at its end belongs to it.)
COMMANDS = [
    (["datasets", "list"], 0),
    (["datasets", "inspect", SAMPLE], 0),
    (["--help"], 0),
    (["report", "/nowhere"], 2),
]


def run(
    arguments: list[str], stdout: int, **env: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        encoding=env.get("PYTHONIOENCODING", "utf-8"),
        timeout=60,
        env=environment() | env,
        check=False,
    )


def into_a_closed_pipe(
    command: list[str], **env: str
) -> subprocess.CompletedProcess[str]:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return run(command, writer, **env)
    finally:
        os.close(writer)


def into_a_full_disk(
    command: list[str], **env: str
) -> subprocess.CompletedProcess[str]:
    with Path("/dev/full").open("wb") as full:
        return run(command, full.fileno(), **env)


def assert_quiet(done: subprocess.CompletedProcess[str], code: int) -> None:
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert "Error" not in done.stderr
    assert "Exception" not in done.stderr


@pytest.mark.parametrize(
    ("command", "code"),
    COMMANDS,
    ids=lambda value: "-".join(value[:2]) if isinstance(value, list) else "",
)
def test_a_full_disk_is_one_sentence(
    command: list[str],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", _safe(full))
        with suppress(SystemExit):  # argparse's own end
            assert main(command) == code
        sys.stdout.flush()
    assert capfd.readouterr().err.count(
        "the output was cut: No space left on device"
    ) == (1 if code == 0 else 0)


def test_a_closed_pipe_is_silence_and_a_full_disk_one_sentence() -> None:
    command = [*CLI, "flags"]
    closed = into_a_closed_pipe(command, PYTHONIOENCODING="ascii")
    assert_quiet(closed, 0)
    assert "output was cut" not in closed.stderr
    full = into_a_full_disk(command)
    assert_quiet(full, 0)
    assert full.stderr.count("the output was cut: No space left on device") == 1


@pytest.mark.parametrize(
    "encoding", ["ascii", pytest.param("latin-1", marks=pytest.mark.heavy)]
)
def test_a_run_without_a_place_to_print_has_its_folder(
    simulate: Callable[..., Simulated], tmp_path: Path, encoding: str
) -> None:
    """A place that takes nothing changes neither folder nor exit code; the report is printed in
    what the terminal has."""
    url = simulate("--interval-ms", "1", "--first-token-ms", "5").url
    flags = ("--num-prompts", "4", "--max-tokens", "3")
    folder = tmp_path / "run"
    command = locust_command(url, folder, *flags)[2:]
    into = into_a_closed_pipe if encoding == "ascii" else into_a_full_disk
    assert_quiet(into(command, PYTHONIOENCODING=encoding), 0)
    for name in ("requests.parquet", "summary.json", "summary.txt", "report.md"):
        assert (folder / name).exists()

    report = [*CLI, "report", str(folder)]
    printed = run(report, subprocess.PIPE, PYTHONIOENCODING=encoding)
    assert_quiet(printed, 0)
    assert "Successful requests:" in printed.stdout
    if encoding == "ascii":
        assert "+ 4 of 4 requests were recorded" in printed.stdout


def test_what_an_encoding_lacks_is_written_in_ascii() -> None:
    assert "".join(map(_closest_ascii, "é 50 – 60 … ✓ █ 語")) == "e 50 - 60 ... + # ?"
