"""Faults planted under a run: a client that stands still, disks that are full, folders that go away. No record is lost."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Finished, Simulated, environment, locust_command
from tests.swarms import wait_until

Run = Callable[..., Finished]


def begin(host: str, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """A run under way, in the folder above its run folder."""
    command = locust_command(host, folder, *arguments)
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=folder.parent, env=environment())


def end(process: subprocess.Popen[str], folder: Path, timeout_s: float = 60) -> Finished:
    """Wait for its end; a run that does not come to one is killed."""
    try:
        out, err = process.communicate(timeout=timeout_s)
    finally:
        process.kill()
    return Finished(process.returncode, out, err, folder)


@pytest.mark.heavy
def test_a_suspended_client_fails_no_request_that_was_answered_in_time(simulate: Callable[..., Simulated], tmp_path: Path) -> None:
    """Answers take 1 s and 0.2 s; the client is stopped for 5 s while six are under way, and 2 s are allowed."""
    server = simulate("--first-token-ms", "1000", "--interval-ms", "20")
    folder = tmp_path / "run"
    run = begin(server.url, folder, "-u", "6", "--num-prompts", "18", "--max-tokens", "10", "--first-token-timeout", "2")
    wait_until(server.has_answered(7))
    time.sleep(0.5)
    run.send_signal(signal.SIGSTOP)
    time.sleep(5)
    run.send_signal(signal.SIGCONT)
    done = end(run, folder)
    assert done.summary["failed"] == 0, done.err
    assert done.summary["completed"] == 18
