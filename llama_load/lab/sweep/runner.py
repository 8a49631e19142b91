"""Runs the cells of a sweep one after the other; one that fails is noted with its reason, and the sweep goes on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from llama_load.errors import LlamaLoadError, RunError
from llama_load.foreign_text import printable
from llama_load.lab.calibrate import QUIET, others_busy
from llama_load.lab.sweep.cells import Cell
from llama_load.lab.sweep.folder import DONE, FAILED, Ended, SweepFolder
from llama_load.lab.sweep.grammar import EMPTY
from llama_load.lab.sweep.plan import Plan
from llama_load.lab.sweep.quality import QualityOf
from llama_load.lab.sweep.rows import Outcome
from llama_load.lab.sweep.run_cell import CellRun, LocustRuns
from llama_load.lab.sweep.running_server import CellServer, RunningServer

LAST_WORDS = 2  # lines of a server's log in a reason


class Watcher(Protocol):
    """Sees how the sweep goes on."""

    def began(self, cell: Cell, doing: str) -> None:
        """A cell began, or began to do something else."""

    def ended(self, cell: Cell, entry: Ended) -> None:
        """A cell ended."""


class Searcher(Protocol):
    """Searches the capacity of a cell, or continues a search that was interrupted."""

    def __call__(self, cell: Cell, server: CellServer, url: str, folder: Path, limit_s: float) -> CellRun:
        """The search of a cell on its server, at `url`; `folder` is the search's."""


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

    def outcome(self, cell: Cell) -> Outcome:
        """How a cell ended."""
        entry = self.folder.ended.get(cell.key)
        folder = self.folder.run_of(cell)
        if entry is None:
            return Outcome(folder, "it has not run yet")
        return Outcome(folder, entry.reason, entry.extra, entry.extra_reasons)


def run_cells(sweep: Sweep, watcher: Watcher, *, searcher: Searcher | None = None, retry_failed: bool = False) -> None:
    """Run all cells that have not ended. On KeyboardInterrupt the cell is left unfinished and the server stopped."""
    plan, folder = sweep.plan, sweep.folder
    server = RunningServer(folder.servers, plan.after_a_cell, empties_cache=plan.cache == EMPTY)
    quality, runs = QualityOf(plan.perplexity, folder), LocustRuns()
    try:
        for cell in sweep.pending(retry_failed=retry_failed):
            if cell.load.search is None or cell.key in folder.ended:  # a search that was interrupted continues
                folder.put_aside(cell)
            entry = run_one(cell, plan, folder, server=server, quality=quality, runs=runs, watcher=watcher, searcher=searcher)
            server.cell_over()
            folder.note(entry)
            watcher.ended(cell, entry)
    finally:
        try:
            runs.close()
        finally:  # also at a second Ctrl-C
            server.stop()


def run_one(
    cell: Cell,
    plan: Plan,
    folder: SweepFolder,
    *,
    server: CellServer,
    quality: QualityOf,
    runs: LocustRuns,
    watcher: Watcher,
    searcher: Searcher | None = None,
) -> Ended:
    """Run a cell on its server, started or kept: how it ended."""
    began = time.monotonic()

    def entry(status: str, **rest: object) -> Ended:
        return Ended(cell.key, status, cell.title, took_s=time.monotonic() - began, **rest)  # type: ignore[arg-type]

    watcher.began(cell, "starts the server")
    try:
        ready = server.ready_for(cell)
    except LlamaLoadError as error:
        return entry(FAILED, reason=_one_line(f"the server did not start: {error}"))
    notes = [ready.note] if ready.note else []
    extra = {} if ready.start_s is None else {"server_start_s": ready.start_s}
    watcher.began(cell, "measures perplexity") if quality.is_missing(cell) else None
    scores, reasons = quality.of(cell, ready.url)
    extra |= scores
    watcher.began(cell, "waits for an idle machine")
    if plan.idle_s and (busy := wait_until_idle(plan.idle_s)) > QUIET:
        notes.append(f"other programs used {busy:.0%} of the machine when the cell began")
    watcher.began(cell, "runs")
    if cell.load.search is not None and searcher is not None:
        done = searcher(cell, server, ready.url, folder.run_of(cell), plan.cell_time_limit_s)
    else:
        done = runs.run(cell, ready.url, folder.run_of(cell), plan.cell_time_limit_s)
    why = server.has_ended()
    if done.reason or why:
        reason = " ".join(filter(None, (f"the server ended: {why};" if why else "", done.reason)))
        return entry(FAILED, reason=_one_line(reason.rstrip(";")), exit_code=done.exit_code, notes=notes)
    return entry(DONE, exit_code=done.exit_code, extra=extra, extra_reasons=reasons, notes=notes)


def _one_line(text: str) -> str:
    """A reason on one line, from its first line and the last ones of what a server said."""
    first, *rest = [line.strip() for line in text.splitlines() if line.strip()]
    return printable(" / ".join([first, *rest[-LAST_WORDS:]]))


def wait_until_idle(most_s: float) -> float:
    """Wait until other programs use little of the machine, at most this long; the share of it that they used last, 0 to 1."""
    deadline = time.monotonic() + most_s
    busy = others_busy()
    while busy > QUIET and time.monotonic() < deadline:
        with suppress(RunError):
            busy = others_busy()
    return busy
