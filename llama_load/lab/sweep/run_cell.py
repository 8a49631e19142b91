"""Runs Locust for the cells, each in a process of its own.

A process ends with the sweep and within the cell's time limit.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from llama_load.ground.own_modules import module_command
from llama_load.ground.processes import end_with_parent
from llama_load.lab.sweep.cells import Cell
from llama_load.lab.sweep.locustfile_flags import flag_words
from llama_load.outside.foreign_text import printable

# Of Locust's exit codes: 0 good, 1 a threshold or failed requests. Others leave no whole run.
WHOLE = (0, 1)
ENDS_WITHIN_S = 30.0  # after SIGINT: the report is written
FORKER = "llama_load.lab.run_forker"
FORKER_ENDS_WITHIN_S = ENDS_WITHIN_S + 10
TAIL_BYTES = 4096


class Order(msgspec.Struct, frozen=True):
    """A run for the forker: Locust's arguments, the file for what it prints, and its time limit."""

    words: list[str]
    log: str
    limit_s: float


class End(msgspec.Struct, frozen=True):
    """How a run ended: its exit code, and whether it was ended because of the time limit."""

    code: int
    is_late: bool


@dataclass(frozen=True, slots=True)
class CellRun:
    """How Locust ended: `reason` is empty if the run is whole."""

    exit_code: int
    reason: str


def locust_words(cell: Cell, url: str, folder: Path) -> list[str]:
    """Locust's arguments of a cell."""
    words = [
        "-f",
        cell.workload.file,
        "--headless",
        "--host",
        url,
        "--run-dir",
        str(folder),
    ]
    return [*words, "--loglevel", "WARNING", *flag_words(cell.flags)]


class LocustRuns:
    """Runs Locust once per cell.

    The processes are forked from one that has imported it (docs/decisions/014).
    """

    def __init__(self) -> None:
        self._forker: subprocess.Popen[bytes] | None = None

    def run(self, cell: Cell, url: str, folder: Path, limit_s: float) -> CellRun:
        """Run a cell; what Locust prints goes to a file beside the run folder.

        After a KeyboardInterrupt `close` ends Locust.
        """
        log = folder.with_name(f"{folder.name}.log")
        end = self._ended(Order(locust_words(cell, url, folder), str(log), limit_s))
        if end.is_late:
            return CellRun(
                end.code, f"it took longer than cell-time-limit-s ({limit_s:g} s)"
            )
        if end.code not in WHOLE or not (folder / "summary.json").is_file():
            return CellRun(
                end.code, f"locust ended with exit code {end.code}: {_last_line(log)}"
            )
        return CellRun(end.code, "")

    def _ended(self, order: Order) -> End:
        """Give the order to the forker, and wait for the end of the run."""
        with open(order.log, "wb") as log:  # noqa: PTH123 (a text)
            if self._forker is None:
                self._forker = subprocess.Popen(
                    module_command(FORKER),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C is ours: Locust must not be ended twice
                    preexec_fn=partial(end_with_parent, signal.SIGKILL, os.getpid()),
                )
        assert self._forker.stdin is not None
        assert self._forker.stdout is not None

        with suppress(BrokenPipeError):
            self._forker.stdin.write(msgspec.json.encode(order) + b"\n")
            self._forker.stdin.flush()
        answer = self._forker.stdout.readline()
        if answer:
            return msgspec.json.decode(answer, type=End)
        return End(
            self.close() or -1, is_late=False
        )  # it was killed, or an import failed

    def close(self) -> int:
        """End the forker, and with it a run that goes on: the forker's exit code."""
        forker = self._forker
        self._forker = None
        if forker is None:
            return 0
        try:
            forker.communicate(timeout=FORKER_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            forker.kill()
            forker.communicate()
        return forker.returncode


def _last_line(log: Path) -> str:
    """The last line of what Locust printed that says something."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        tail = file.read().decode("utf-8", "replace")

    for line in reversed(tail.splitlines()):
        text = line.strip()
        if text and not text.startswith("Run folder"):
            return printable(text, 300)
    return "it printed nothing"
