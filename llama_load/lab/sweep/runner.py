"""Runs the cells of a sweep one after the other; one that fails is noted with its reason, and the sweep goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from llama_load.errors import LlamaLoadError
from llama_load.foreign_text import printable
from llama_load.lab.calibrate import QUIET, wait_for_quiet
from llama_load.lab.sweep.cells import Cell
from llama_load.lab.sweep.folder import DONE, FAILED, NOT_RUN, Ended, SweepFolder
from llama_load.lab.sweep.grammar import EMPTY
from llama_load.lab.sweep.plan import Plan
from llama_load.lab.sweep.quality import QualityOf
from llama_load.lab.sweep.run_cell import CellRun, LocustRuns
from llama_load.lab.sweep.running_server import RunningServer

LAST_WORDS = 2  # lines of a server's log in a reason


class Watcher(Protocol):
    """Sees how the sweep goes on."""

    def began(self, cell: Cell, doing: str) -> None:
        """A cell began, or began to do something else."""

    def ended(self, cell: Cell, entry: Ended) -> None:
        """A cell ended."""


# Searches the capacity of a cell on its server, or continues a search that was interrupted. The folder is the search's; the number
# is its limit in seconds.
Searcher = Callable[[Cell, RunningServer, Path, float], CellRun]


@dataclass(frozen=True, slots=True)
class Sweep:
    """A plan, its cells and the folder."""

    plan: Plan
    cells: Sequence[Cell]
    folder: SweepFolder

    def pending(self, *, retry_failed: bool = False) -> list[Cell]:
        """The cells that have not ended; with `retry_failed` also those that failed."""
        ended = self.folder.ended
        return [cell for cell in self.cells if cell.key not in ended or (retry_failed and ended[cell.key].status == FAILED)]

    def entry(self, cell: Cell) -> Ended:
        """How a cell ended; one that has not run has that as its reason."""
        return self.folder.ended.get(cell.key) or Ended(cell.key, NOT_RUN, cell.title, "it has not run yet")


def run_cells(sweep: Sweep, watcher: Watcher, *, searcher: Searcher | None = None, retry_failed: bool = False) -> None:
    """Run all cells that have not ended. On KeyboardInterrupt the cell is left unfinished and the server stopped."""
    with closing(CellRunner(sweep.plan, sweep.folder, watcher)) as runner:
        for cell in sweep.pending(retry_failed=retry_failed):
            runner.run(cell, searcher=searcher)


class CellRunner:
    """Runs cells with Locust, on servers of their own or on one of another runner."""

    def __init__(
        self, plan: Plan, folder: SweepFolder, watcher: Watcher | None = None, *, server: RunningServer | None = None
    ) -> None:
        """`server`: of another runner, which stops it."""
        self._plan, self._folder, self._watcher = plan, folder, watcher
        self._owns_server = server is None
        self._server = server or RunningServer(folder.servers, plan.after_a_cell, empties_cache=plan.cache == EMPTY)
        self._quality = None if plan.perplexity is None else QualityOf(plan.perplexity, folder)
        self._locust = LocustRuns()

    def close(self) -> None:
        """End Locust and stop the server."""
        try:
            self._locust.close()
        finally:  # also at a second Ctrl-C
            if self._owns_server:
                self._server.stop()

    def run(self, cell: Cell, *, limit_s: float | None = None, searcher: Searcher | None = None) -> Ended:
        """Run a cell on its server, started or kept, and note how it ended. `limit_s`: instead of the plan's time limit."""
        if cell.load.search is None or cell.key in self._folder.ended:  # a search that was interrupted continues
            self._folder.put_aside(cell)
        began = time.monotonic()
        entry = self._ended(cell, self._plan.cell_time_limit_s if limit_s is None else limit_s, searcher)
        entry = msgspec.structs.replace(entry, took_s=time.monotonic() - began)
        if self._owns_server:
            self._server.cell_over()
        self._folder.note(entry)
        if self._watcher is not None:
            self._watcher.ended(cell, entry)
        return entry

    def _ended(self, cell: Cell, limit_s: float, searcher: Searcher | None) -> Ended:
        self._began(cell, "starts the server")
        try:
            ready = self._server.ready_for(cell)
        except LlamaLoadError as error:
            return Ended(cell.key, FAILED, cell.title, reason=_one_line(f"the server did not start: {error}"))
        notes = [ready.note] if ready.note else []
        extra = {} if ready.start_s is None else {"server_start_s": ready.start_s}
        reasons: dict[str, str] = {}
        if self._quality is not None:
            if self._quality.is_missing(cell):
                self._began(cell, "measures perplexity")
            scores, reasons = self._quality.of(cell, ready.url)
            extra |= scores
        self._began(cell, "waits for an idle machine")
        if self._plan.idle_s and (busy := wait_for_quiet(self._plan.idle_s)) > QUIET:
            notes.append(f"other programs used {busy:.0%} of the machine when the cell began")
        self._began(cell, "runs")
        if cell.load.search is not None and searcher is not None:
            done = searcher(cell, self._server, self._folder.run_of(cell), limit_s)
        else:
            done = self._locust.run(cell, ready.url, self._folder.run_of(cell), limit_s)
        why = self._server.has_ended()
        if done.reason or why:
            reason = " ".join(filter(None, (f"the server ended: {why};" if why else "", done.reason)))
            return Ended(cell.key, FAILED, cell.title, _one_line(reason.rstrip(";")), done.exit_code, notes=notes)
        return Ended(cell.key, DONE, cell.title, "", done.exit_code, extra=extra, extra_reasons=reasons, notes=notes)

    def _began(self, cell: Cell, doing: str) -> None:
        if self._watcher is not None:
            self._watcher.began(cell, doing)


def _one_line(text: str) -> str:
    """A reason on one line, from its first line and the last ones of what a server said."""
    first, *rest = [line.strip() for line in text.splitlines() if line.strip()]
    return printable(" / ".join([first, *rest[-LAST_WORDS:]]))
