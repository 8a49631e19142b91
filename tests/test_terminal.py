"""What people read goes out, or is dropped, but never raises: closed pipes, full disks, poor
encodings."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from llama_load.terminal import _closest_ascii
from tests.conftest import REPOSITORY, Finished, Simulated, environment, locust_command

SAMPLE = str(REPOSITORY / "datasets" / "sharegpt_sample.json")
CLI = [sys.executable, "-m", "llama_load.cli.main"]
# A table of rich's, plain lines, argparse's own text, a sentence on stderr with exit code 2.
COMMANDS = [
    ([*CLI, "flags"], 0),
    ([*CLI, "datasets", "list"], 0),
    ([*CLI, "datasets", "inspect", SAMPLE], 0),
    ([*CLI, "--help"], 0),
    ([*CLI, "report", "/nowhere"], 2),
]


def run(
    command: list[str], stdout: int, **env: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
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
    ids=lambda value: "-".join(value[3:5]) if isinstance(value, list) else "",
)
def test_a_closed_pipe_is_silence_and_a_full_disk_one_sentence(
    command: list[str], code: int
) -> None:
    closed = into_a_closed_pipe(command, PYTHONIOENCODING="ascii")
    assert_quiet(closed, code)
    assert "output was cut" not in closed.stderr
    full = into_a_full_disk(command)
    assert_quiet(full, code)
    assert full.stderr.count("the output was cut: No space left on device") == (
        1 if code == 0 else 0
    )


@pytest.mark.parametrize(
    "encoding", ["ascii", pytest.param("latin-1", marks=pytest.mark.heavy)]
)
def test_a_run_without_a_place_to_print_has_its_folder(
    simulate: Callable[..., Simulated],
    run_report: Callable[..., Finished],
    tmp_path: Path,
    encoding: str,
) -> None:
    """Its report is printed in what the terminal has; a pipe that nobody reads changes neither
    folder nor exit code."""
    url = simulate("--interval-ms", "1", "--first-token-ms", "5").url
    flags = ("--num-prompts", "4", "--max-tokens", "3")
    printed = run(
        locust_command(url, tmp_path / "a", *flags),
        subprocess.PIPE,
        PYTHONIOENCODING=encoding,
    )
    assert_quiet(printed, 0)
    assert "Successful requests:" in printed.stdout
    if encoding == "ascii":
        assert "+ 4 of 4 requests were recorded" in printed.stdout
        into = into_a_closed_pipe
    else:
        into = into_a_full_disk
    assert_quiet(
        into(locust_command(url, tmp_path / "b", *flags), PYTHONIOENCODING=encoding), 0
    )
    for name in ("requests.parquet", "summary.json", "summary.txt", "report.md"):
        assert (tmp_path / "b" / name).exists()
    assert_quiet(
        into([*CLI, "report", str(tmp_path / "b")], PYTHONIOENCODING=encoding), 0
    )


def test_what_an_encoding_lacks_is_written_in_ascii() -> None:
    assert "".join(map(_closest_ascii, "é 50 – 60 … ✓ █ 語")) == "e 50 - 60 ... + # ?"
