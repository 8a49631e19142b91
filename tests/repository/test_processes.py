"""What tests start ends with them."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from llama_load.ground.own_modules import child_environment, module_environment
from tests.conftest import REPOSITORY, run_to_the_end
from tests.swarms import wait_until

HAS_A_CHILD = """
import pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
pathlib.Path("written").write_text(str(child.pid))
pathlib.Path("written").rename("child")
time.sleep(60)
"""


def is_gone(pid: int) -> bool:
    return (
        not psutil.pid_exists(pid)
        or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    )


def test_a_timeout_ends_the_whole_process_group(tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run_to_the_end([sys.executable, "-c", HAS_A_CHILD], 3, cwd=tmp_path)
    wait_until(lambda: is_gone(int((tmp_path / "child").read_text())), 10)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel does that on Linux")
def test_a_run_ends_with_the_pytest_that_started_it(tmp_path: Path) -> None:
    runs = f"import sys; from tests.conftest import run_to_the_end; run_to_the_end([sys.executable, '-c', {HAS_A_CHILD!r}], cwd={str(tmp_path)!r})"
    parent = subprocess.Popen([sys.executable, "-c", runs], cwd=REPOSITORY)
    try:
        wait_until((tmp_path / "child").exists)
        (run,) = psutil.Process(parent.pid).children()
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        wait_until(lambda: is_gone(run.pid), 10)
    finally:
        parent.kill()
        for pid in tmp_path.glob("child"):
            psutil.Process(int(pid.read_text())).kill()


def test_a_program_of_others_gets_no_key_that_is_not_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LLAMA_LOAD_API_KEY", "sk-0123456789")
    monkeypatch.setenv("LLAMA_LOAD_A_LATER_KEY", "sk-0123456789")
    monkeypatch.setenv("PATH_OF_THEIRS", "/x")
    given = child_environment({"THEIR_KEY": "a"})
    assert not [name for name in given if name.startswith("LLAMA_LOAD_")]
    assert given["PATH_OF_THEIRS"] == "/x"
    assert given["THEIR_KEY"] == "a"
    assert module_environment(without=["PATH_OF_THEIRS"])["LLAMA_LOAD_API_KEY"]
    assert "PATH_OF_THEIRS" not in module_environment(without=["PATH_OF_THEIRS"])
