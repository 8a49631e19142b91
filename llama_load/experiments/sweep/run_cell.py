"""Runs Locust for one cell: a process of its own, which ends with the sweep and within the cell's time limit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from llama_load.experiments.sweep.cells import Cell
from llama_load.experiments.sweep.locust_flags import flag_words
from llama_load.foreign_text import printable

# Of Locust's exit codes: 0 good, 1 a threshold or failed requests. Others leave no whole run.
WHOLE = (0, 1)
ENDS_WITHIN_S = 30.0  # after SIGINT: the report is written
TAIL_BYTES = 4096
PR_SET_PDEATHSIG = 1  # linux/prctl.h


@dataclass(frozen=True, slots=True)
class CellRun:
    """How Locust ended: `reason` is empty if the run is whole."""

    exit_code: int
    reason: str


def locust_command(cell: Cell, url: str, folder: Path) -> list[str]:
    """The command line of a cell."""
    command = [sys.executable, "-m", "locust", "-f", cell.workload.file, "--headless", "--host", url, "--run-dir", str(folder)]
    return [*command, "--loglevel", "WARNING", *flag_words(cell.flags)]


def run_locust(cell: Cell, url: str, folder: Path, limit_s: float) -> CellRun:
    """Run a cell; what Locust prints goes to a file beside the run folder. On KeyboardInterrupt Locust is ended first."""
    log = folder.with_name(f"{folder.name}.log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            locust_command(cell, url, folder),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is ours: Locust must not be ended twice
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )
        is_late = False
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            is_late = True
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(ENDS_WITHIN_S)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    code = process.returncode
    if is_late:
        return CellRun(code, f"it took longer than cell-time-limit-s ({limit_s:g} s)")
    if code not in WHOLE or not (folder / "summary.json").is_file():
        return CellRun(code, f"locust ended with exit code {code}: {_last_line(log)}")
    return CellRun(code, "")


def _last_line(log: Path) -> str:
    """The last line of what Locust printed that says something."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines()]
    said = [line for line in lines if line and not line.startswith("Run folder")]
    return printable(said[-1], 300) if said else "it printed nothing"


def _end_with_parent() -> None:
    """The kernel ends Locust if the sweep is killed."""
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:
        os._exit(1)
