"""Start and stop the server of a case."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from pathlib import Path

from truth.cases import Answers
from truth.problem import Problem

SOURCE = files("truth.server") / "server.c"
ROOT = (
    Path(__file__).resolve().parents[2]
)  # the folder or zip file in which the package lies
STOPS_WITHIN_S = 60.0  # it writes its log at the end
# Without it Python imports from the folder in which it is started, which may hold files of others.
NOT_FROM_HERE = "-P"
COMPILERS = ("cc", "gcc", "clang")
NO_CORE = -1


@cache
def compiled() -> Path | None:
    """The C program; None without a C compiler or Linux."""
    found = [path for name in COMPILERS if (path := shutil.which(name))]
    if not found or not sys.platform.startswith("linux"):
        return None
    folder = tempfile.mkdtemp(prefix="truth-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    program = Path(folder) / "server"
    source = Path(folder) / "server.c"
    source.write_bytes(SOURCE.read_bytes())
    command = [found[0], "-O2", "-o", str(program), str(source)]
    done = subprocess.run(command, check=False, capture_output=True)
    if done.returncode:
        return None
    return program


@contextmanager
def serving(
    answers: Answers, log: Path, port: int = 0, case: str = ""
) -> Iterator[str]:
    """The URL of a fresh server. It has written `log` when the block ends. Problem: it does not
    start."""
    process, used = start(answers, log, port, case)
    try:
        yield f"http://127.0.0.1:{used}"
    finally:
        stop(process)


def start(
    answers: Answers, log: Path, port: int = 0, case: str = ""
) -> tuple[subprocess.Popen[bytes], int]:
    """The process and its port."""
    program = compiled()
    if program is not None and answers.plain:
        command = _native_command(program, answers, log, port, case)
    else:
        command = _python_command(answers, log, port, case)

    environment = dict(os.environ)
    before = environment.get("PYTHONPATH", "")
    environment["PYTHONPATH"] = f"{ROOT}{os.pathsep}{before}" if before else str(ROOT)
    with log.with_suffix(".server.txt").open("wb") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
        )

    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line.isdigit():
        process.kill()
        process.wait()
        text = log.with_suffix(".server.txt").read_text(errors="replace").strip()
        raise Problem(f"the server did not start: {text or 'it ended without a word'}")
    return process, int(line)


def stop(process: subprocess.Popen[bytes]) -> None:
    """It writes its log."""
    process.terminate()
    process.wait(STOPS_WITHIN_S)
    if process.stdout is not None:
        process.stdout.close()


def _native_command(
    program: Path, answers: Answers, log: Path, port: int, case: str
) -> list[str]:
    cores = os.sched_getaffinity(0)
    core = max(cores) if len(cores) > 1 else NO_CORE
    times = (answers.first_token_ms, answers.interval_ms, answers.jitter_ms)
    in_us = [str(round(ms * 1000)) for ms in times]
    grid = str(int(answers.synchronous))
    stamps = str(int(answers.stamp_all))
    return [str(program), str(port), str(log), *in_us, grid, str(core), stamps, case]


def _python_command(answers: Answers, log: Path, port: int, case: str) -> list[str]:
    text = json.dumps(asdict(answers))
    words = ["--port", str(port), "--log", str(log), "--case", case, "--answers", text]
    return [sys.executable, NOT_FROM_HERE, "-m", "truth.server.plain", *words]
