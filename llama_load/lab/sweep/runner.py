"""Runs the cells of a sweep one after the other.

One that fails is noted with its reason, and the sweep goes on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from llama_load.analysis.checks.machine import NAME as OTHERS
from llama_load.analysis.figures.check_limits import LIMITS
from llama_load.analysis.results.run_summary import read_summary
from llama_load.ground.errors import LlamaLoadError
from llama_load.lab.calibrate import QUIET, wait_for_quiet
from llama_load.lab.sweep.cells import Cell
from llama_load.lab.sweep.folder import DONE, FAILED, NOT_RUN, Ended, SweepFolder
from llama_load.lab.sweep.grammar import EMPTY, URL
from llama_load.lab.sweep.machine_watch import MachineWatch
from llama_load.lab.sweep.plan import Plan
from llama_load.lab.sweep.quality import QualityOf
from llama_load.lab.sweep.rows import MOST_SUMMARY_BYTES
from llama_load.lab.sweep.run_cell import CellRun, LocustRuns
from llama_load.lab.sweep.running_server import RunningServer
from llama_load.outside.foreign_text import printable
from llama_load.run_folder.vocabulary.verdict_words import CLIENT_BOUND

LAST_WORDS = 2  # lines of a server's log in a reason
SHARED_MACHINE = "LLAMA_LOAD_SHARED_MACHINE"
DISTURBED = "disturbed"  # in the name of a run folder that was put aside


class Watcher(Protocol):
    """Sees how the sweep goes on."""

    def began(self, cell: Cell, doing: str) -> None:
        """A cell began, or began to do something else."""

    def ended(self, cell: Cell, entry: Ended) -> None:
        """A cell ended."""


# Searches the capacity of a cell on its server, or continues a search that was interrupted. The
# folder is the search's; the number is its limit in seconds.
Searcher = Callable[[Cell, RunningServer, Path, float], CellRun]


@dataclass(frozen=True, slots=True)
class Sweep:
    """A plan, its cells and the folder."""

    plan: Plan
    cells: Sequence[Cell]
    folder: SweepFolder

    def pending(self, *, retry_failed: bool = False) -> list[Cell]:
        """The cells that have not ended; with `retry_failed` also those that failed."""
        left = []
        for cell in self.cells:
            entry = self.folder.ended.get(cell.key)
            if entry is None or (retry_failed and entry.status == FAILED):
                left.append(cell)
        return left

    def entry(self, cell: Cell) -> Ended:
        """How a cell ended; one that has not run has that as its reason."""
        entry = self.folder.ended.get(cell.key)
        if entry is None:
            return Ended(cell.key, NOT_RUN, cell.title, "it has not run yet")
        return entry


def disturbance_of(folder: SweepFolder, cell: Cell) -> str:
    """What other programs did while a cell ran; empty if they did not disturb it."""
    entry = folder.ended.get(cell.key)
    if entry is None:
        return ""
    if entry.disturbed:
        return entry.disturbed
    if entry.status != DONE or cell.load.search is not None:
        return ""
    try:
        summary = read_summary(folder.run_of(cell), MOST_SUMMARY_BYTES)
    except (OSError, ValueError):  # its row says so
        return ""
    return summary.disturbed


def run_cells(
    sweep: Sweep,
    watcher: Watcher,
    *,
    searcher: Searcher | None = None,
    retry_failed: bool = False,
) -> None:
    """Run all cells that have not ended.

    Those that other programs disturbed run once more at the end, if the machine is idle then: the
    plan waits for that with `idle-s`. On KeyboardInterrupt the cell is left unfinished and the
    server stopped.
    """
    pending = sweep.pending(retry_failed=retry_failed)
    with closing(CellRunner(sweep.plan, sweep.folder, watcher)) as runner:
        for cell in pending:
            runner.run(cell, searcher=searcher)

        for cell in pending:
            why = disturbance_of(sweep.folder, cell)
            if why and runner.run_again(cell, why, searcher=searcher) is None:
                break  # the next repeat would be disturbed, too


class CellRunner:
    """Runs cells with Locust, on servers of their own or on one of another runner."""

    def __init__(
        self,
        plan: Plan,
        folder: SweepFolder,
        watcher: Watcher | None = None,
        *,
        server: RunningServer | None = None,
    ) -> None:
        """`server`: of another runner, which stops it."""
        self._plan = plan
        self._folder = folder
        self._watcher = watcher
        self._owns_server = server is None
        self._server = server or RunningServer(
            folder.servers, plan.after_a_cell, empties_cache=plan.cache == EMPTY
        )
        self._quality = (
            None if plan.perplexity is None else QualityOf(plan.perplexity, folder)
        )
        self._locust = LocustRuns()

    def close(self) -> None:
        """End Locust and stop the server."""
        try:
            self._locust.close()
        finally:  # also at a second Ctrl-C
            if self._owns_server:
                self._server.stop()

    def run(
        self,
        cell: Cell,
        *,
        limit_s: float | None = None,
        searcher: Searcher | None = None,
        note: str = "",
    ) -> Ended:
        """Run a cell on its server, started or kept, and note how it ended.

        `limit_s`: instead of the plan's time limit; `note`: about the cell.
        """
        # a search that was interrupted continues
        if cell.load.search is None or cell.key in self._folder.ended:
            self._folder.put_aside(cell)
        if limit_s is None:
            limit_s = self._plan.cell_time_limit_s

        began = time.monotonic()
        entry = self._ended(cell, limit_s, searcher)
        entry = msgspec.structs.replace(entry, took_s=time.monotonic() - began)
        if note:
            entry = msgspec.structs.replace(entry, notes=[note, *entry.notes])
        if self._owns_server:
            self._server.cell_over()
        self._folder.note(entry)
        if self._watcher is not None:
            self._watcher.ended(cell, entry)
        return entry

    def run_again(
        self, cell: Cell, why: str, *, searcher: Searcher | None = None
    ) -> Ended | None:
        """Run a cell that was disturbed once more, if the plan waits for an idle machine.

        None: the machine is not idle in time, or the plan does not wait. The first folder is kept.
        """
        if not self._plan.idle_s or wait_for_quiet(self._plan.idle_s) > QUIET:
            return None
        self._folder.put_aside(cell, DISTURBED)
        note = f"run again, because {why} the first time"
        return self.run(cell, searcher=searcher, note=note)

    def _ended(self, cell: Cell, limit_s: float, searcher: Searcher | None) -> Ended:
        times_start = self._plan.times_starts and cell.server.kind != URL
        if times_start:
            self._wait_for_quiet(cell)

        self._began(cell, "starts the server")
        watch = MachineWatch()
        try:
            ready = self._server.ready_for(cell)
        except LlamaLoadError as error:
            reason = _one_line(f"the server did not start: {error}")
            return Ended(cell.key, FAILED, cell.title, reason=reason)
        figures: dict[str, float] = {}
        others_at_start = 0.0
        if ready.start_s is not None:
            figures["server_start_s"] = ready.start_s
            if times_start:
                others_at_start = watch.others()

        reasons: dict[str, str] = {}
        if self._quality is not None:
            if self._quality.is_missing(cell):
                self._began(cell, "measures perplexity")
            scores, reasons = self._quality.of(cell, ready.url)
            figures |= scores

        notes = [ready.note] if ready.note else []
        busy = self._wait_for_quiet(cell)
        if busy > QUIET:
            notes.append(
                f"other programs used {busy:.0%} of the machine when the cell began"
            )

        self._began(cell, "runs")
        watch = MachineWatch()
        folder = self._folder.run_of(cell)
        if cell.load.search is not None and searcher is not None:
            done = searcher(cell, self._server, folder, limit_s)
        else:
            done = self._locust.run(cell, ready.url, folder, limit_s)

        reason = _reason(self._server.has_ended(), done.reason)
        disturbed = ""
        if self._plan.idle_s and not _shares_machine(cell):
            disturbed = _seen(others_at_start, "while the server started")
        if not disturbed and self._judges_others(cell, reason):
            disturbed = _seen(watch.others(), "while the cell ran")
        if reason:
            return Ended(
                cell.key,
                FAILED,
                cell.title,
                reason,
                done.exit_code,
                notes=notes,
                disturbed=disturbed,
            )
        return Ended(
            cell.key,
            DONE,
            cell.title,
            "",
            done.exit_code,
            extra=figures,
            extra_reasons=reasons,
            notes=notes,
            disturbed=disturbed,
        )

    def _wait_for_quiet(self, cell: Cell) -> float:
        """Wait as long as the plan allows: the share that other programs used last."""
        if not self._plan.idle_s:
            return 0.0
        self._began(cell, "waits for an idle machine")
        return wait_for_quiet(self._plan.idle_s)

    def _judges_others(self, cell: Cell, reason: str) -> bool:
        """Whether the sweep judges what other programs used, because the run does not.

        Not of a server that the sweep did not start: it may be one of these programs.
        """
        if not self._plan.idle_s or _shares_machine(cell) or cell.server.kind == URL:
            return False
        if reason or cell.load.search is not None:
            return True
        try:
            summary = read_summary(self._folder.run_of(cell), MOST_SUMMARY_BYTES)
        except (OSError, ValueError):  # its row says so
            return False
        return CLIENT_BOUND in summary.words or not summary.knows_others

    def _began(self, cell: Cell, doing: str) -> None:
        if self._watcher is not None:
            self._watcher.began(cell, doing)


def _shares_machine(cell: Cell) -> bool:
    """Whether other programs belong to the measurement, by --shared-machine."""
    given = cell.flags.get("shared-machine")
    return given == [True] if given else SHARED_MACHINE in os.environ


def _seen(others: float, when: str) -> str:
    """What other programs used of the machine; empty if that is within the limit of a run."""
    if others <= LIMITS[OTHERS].limit:
        return ""
    return f"other programs used {others:.0%} of the machine {when}"


def _reason(of_server: str, of_run: str) -> str:
    """Why a cell failed: because its server ended, or by its run; empty if it did not."""
    if not of_server and not of_run:
        return ""
    if not of_server:
        return _one_line(of_run)
    if not of_run:
        return _one_line(f"the server ended: {of_server}")
    return _one_line(f"the server ended: {of_server}; {of_run}")


def _one_line(text: str) -> str:
    """A reason on one line, from its first line and the last ones of what a server said."""
    first, *rest = [line.strip() for line in text.splitlines() if line.strip()]
    return printable(" / ".join([first, *rest[-LAST_WORDS:]]))
