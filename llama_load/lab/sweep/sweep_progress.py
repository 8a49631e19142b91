"""What a running sweep shows: a live table in a terminal, a line per cell elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from llama_load.lab.sweep.cells import Cell
from llama_load.lab.sweep.folder import DONE, FAILED, Ended
from llama_load.lab.sweep.missing_notes import MISSING
from llama_load.lab.sweep.rows import Row, rows_of
from llama_load.lab.sweep.runner import Sweep
from llama_load.lab.sweep.sweep_tables import make_tables
from llama_load.lab.sweep.time_needed import needed_text
from llama_load.outside.foreign_text import printable
from llama_load.tables import titled_lines
from llama_load.tables.bounded_console import LEAST_LIVE_WIDTH, bounded_console
from llama_load.tables.numbers import duration

SHOWN_CELLS = 12
MOST_LINES = 40


class Progress(ExitStack):
    """Follows a sweep on stderr."""

    def __init__(self, sweep: Sweep, pending: Sequence[Cell]) -> None:
        super().__init__()
        self._sweep = sweep
        self._pending = list(pending)
        self._now: _Running | None = None
        self._is_live = False
        self._shown: tuple[int, list[str]] = (
            0,
            [],
        )  # cells that had ended, and their table
        self._rows: dict[str, list[Row]] = {}

    def __enter__(self) -> Progress:
        """Begin the live table, in a terminal."""
        if sys.stderr.isatty():
            from rich.live import Live

            console = bounded_console(stderr=True, least_width=LEAST_LIVE_WIDTH)
            live = Live(
                console=console,
                get_renderable=self._table,
                refresh_per_second=2,
                transient=True,
            )
            self.enter_context(live)
            self._is_live = True
        return self

    def began(self, cell: Cell, doing: str) -> None:
        """See `runner.Watcher`."""
        started = time.monotonic()
        if self._now is not None and self._now.cell is cell:
            started = self._now.started
        self._now = _Running(cell, doing, started)

    def ended(self, cell: Cell, entry: Ended) -> None:
        """See `runner.Watcher`."""
        self._now = None
        self._pending = [other for other in self._pending if other is not cell]
        self._rows.pop(cell.key, None)  # it had failed, and was run again
        if self._is_live:
            return

        outcome = f"done in {duration(entry.took_s)}"
        if entry.reason:
            outcome = f"{MISSING}: {entry.reason}"
        for note in entry.notes:
            outcome += f" ({note})"
        title = f"{self._place()} {printable(cell.title)}, repeat {cell.repeat}"
        print(f"{title}: {outcome}; {self._left()}", file=sys.stderr, flush=True)

    def _place(self) -> str:
        """`[3/8]`."""
        cells = len(self._sweep.cells)
        return f"[{cells - len(self._pending)}/{cells}]"

    def _left(self) -> str:
        if not self._pending:
            return "none left"

        sweep = self._sweep
        return f"left: {needed_text(self._pending, sweep.cells, sweep.folder.ended)}"

    def _table(self) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        ended = self._sweep.folder.ended
        done = []
        for cell in self._sweep.cells:
            if cell.key in ended:
                done.append(cell)

        table = Table("cell", "repeat", "outcome", box=None, padding=(0, 2, 0, 0))
        for cell in done[-SHOWN_CELLS:]:
            entry = ended[cell.key]
            outcome = duration(entry.took_s)
            if entry.status != DONE:
                outcome = f"{MISSING}: {printable(entry.reason, 60)}"
            style = "red" if entry.status == FAILED else ""
            table.add_row(
                Text(printable(cell.title)), str(cell.repeat), Text(outcome, style)
            )

        if self._now is not None:
            cell = self._now.cell
            title = Text(printable(cell.title), "bold")
            since = duration(time.monotonic() - self._now.started)
            table.add_row(title, str(cell.repeat), Text(f"{self._now.doing}, {since}"))

        heading = Text(f"{self._place()} {self._left()}", "bold")
        return Group(heading, table, *self._figures(done))

    def _figures(self, done: Sequence[Cell]) -> list[Any]:
        """The first table so far."""
        from rich.text import Text

        if not done:
            return []
        shown_cells, lines = self._shown
        if shown_cells != len(done):
            table = make_tables(self._sweep.plan, self._rows_of(done))[0]
            lines = titled_lines(table)[:MOST_LINES]
            self._shown = (len(done), lines)
        return [Text("\n".join(lines))]

    def _rows_of(self, done: Sequence[Cell]) -> list[Row]:
        """The rows of these cells, whose run folders are read once."""
        sweep = self._sweep
        for place, cell in enumerate(sweep.cells):
            if cell.key in sweep.folder.ended and cell.key not in self._rows:
                folder = sweep.folder.run_of(cell)
                self._rows[cell.key] = rows_of(cell, folder, sweep.entry(cell), place)

        rows: list[Row] = []
        for cell in done:
            rows += self._rows[cell.key]
        return rows


class _Running(NamedTuple):
    """A cell that runs, what it does now, and when it began (seconds of the monotonic clock)."""

    cell: Cell
    doing: str
    started: float
