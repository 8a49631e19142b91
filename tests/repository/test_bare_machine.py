"""On macOS and Windows: nothing at import needs what they lack, and the demo runs without it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from llama_load.run_folder import lock_folder
from tests.conftest import REPOSITORY, environment, run_to_the_end
from tests.schemas import check_folder

# What `os`, `signal` and `socket` of Windows lack, as far as a module could name it at import.
OF_POSIX = {
    "os": (
        "O_CLOEXEC",
        "O_DIRECTORY",
        "O_NOFOLLOW",
        "O_NONBLOCK",
        "getuid",
        "killpg",
        "sched_getaffinity",
        "sched_setscheduler",
    ),
    "signal": ("SIGHUP", "SIGKILL", "SIGXCPU"),
    "socket": ("AF_UNIX",),
}
# Started as programs of their own, with packages of an extra or of other environments.
PROGRAMS = ("__main__", "embedded_server", "llama_cpp_python_rpc")
# First what others import, which is built for this system.
IMPORT_ALL = f"""
import importlib, os, pkgutil, select, signal, socket
import asyncio, jinja2, locust, psutil, pyarrow.parquet, requests, rich.console, zmq.green
import urllib3.connection, tempfile, multiprocessing.connection, prometheus_client
import llama_load
assert not hasattr(select, "epoll")
for module, names in {OF_POSIX!r}.items():
    for name in names:
        delattr(globals()[module], name)
count = 0
for module in pkgutil.walk_packages(llama_load.__path__, "llama_load."):
    if module.name.rpartition(".")[2] not in {PROGRAMS!r}:
        importlib.import_module(module.name)
        count += 1
print(count)
"""


def bare() -> dict[str, str]:
    """The environment of a process without fcntl, resource, pwd, fork, epoll and /proc."""
    return environment() | {"PYTHONPATH": str(REPOSITORY / "tests" / "bare_machine")}


def test_every_module_is_imported_without_what_other_systems_lack() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL],
        capture_output=True,
        text=True,
        env=bare(),
        cwd=REPOSITORY,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 400


@pytest.mark.parametrize(
    "code",
    [
        "import fcntl",
        "import resource",
        "import pwd",
        "os.fork()",
        "select.epoll",
        "open('/proc/stat')",
        "Path('/proc/stat').read_text()",
        "os.listdir('/proc/self')",
    ],
)
def test_what_is_taken_away_is_away(code: str) -> None:
    """Else the other tests would show nothing. From a module of llama_load, as it would be used."""
    program = f"import os, select\nfrom pathlib import Path\n{code}\n"
    run = f"exec({program!r}, {{'__name__': 'llama_load.some_module'}})"
    done = subprocess.run(
        [sys.executable, "-c", run],
        capture_output=True,
        text=True,
        env=bare(),
        check=False,
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(("ModuleNotFoundError", "AttributeError", "FileNotFound"))


@pytest.mark.heavy
def test_the_demo_runs_there_and_the_verdict_says_what_is_missing(
    tmp_path: Path,
) -> None:
    """One line of the verdict names it, and the lock that is missing is a sentence. Catches a whole
    run that needs what a bare machine lacks."""
    command = [sys.executable, "-m", "llama_load.cli.main", "demo"]
    command += ["-u", "2", "--num-prompts", "4", "--max-tokens", "8"]
    done = run_to_the_end(command, cwd=tmp_path, env=bare())

    assert done.returncode == 0, done.stderr
    printed = " ".join(done.stdout.split())
    assert "4 of 4 answered" in printed
    assert (
        "4 of 4 requests were timed in user space (no kernel timestamps; no real-time priority)"
        in printed
    )
    assert "cannot be locked (this system has no flock)" in done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    check_folder(folder)


def test_a_lock_without_flock_excludes_nobody_and_can_be_released_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("llama_load.run_folder.folder_lock.fcntl", None)
    lock = lock_folder(tmp_path)
    assert lock is not None and lock_folder(tmp_path) is not None
    assert "start no other run" in capsys.readouterr().err
    lock.release()
    lock.release()
    with pytest.raises(OSError, match=os.strerror(20)):
        lock_folder(tmp_path / "none")
