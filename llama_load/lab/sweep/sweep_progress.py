"""What a running sweep shows: a live table in a terminal, a line per cell elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from llama_load.foreign_text import printable
from llama_load.lab.sweep.cells import Cell
from llama_load.lab.sweep.folder import DONE, FAILED, Ended
from llama_load.lab.sweep.rows import Row, rows_of
from llama_load.lab.sweep.runner import Sweep
from llama_load.lab.sweep.sweep_tables import MISSING, make_tables
from llama_load.lab.sweep.time_needed import needed_s
from llama_load.tables import titled_lines
from llama_load.tables.bounded_console import LEAST_LIVE_WIDTH, bounded_console
from llama_load.tables.numbers import duration
from llama_load.units import quantity

SHOWN_CELLS = 12


class Progress(ExitStack):
    """Follows a sweep on stderr."""

    def __init__(self, sweep: Sweep, pending: Sequence[Cell]) -> None:
        super().__init__()
        self._sweep, self._pending = sweep, list(pending)
        self._now: tuple[Cell, str, float] | None = None
        self._is_live = False
        self._shown: tuple[int, list[str]] = (0, [])
        self._rows: dict[str, list[Row]] = {}

    def __enter__(self) -> Progress:
        """Begin the live table, in a terminal."""
        if sys.stderr.isatty():
            from rich.live import Live

            console = bounded_console(stderr=True, least_width=LEAST_LIVE_WIDTH)
            live = Live(console=console, get_renderable=self._table, refresh_per_second=2, transient=True)
            self.enter_context(live)
            self._is_live = True
        return self

    def began(self, cell: Cell, doing: str) -> None:
        """See `runner.Watcher`."""
        started = self._now[2] if self._now is not None and self._now[0] is cell else time.monotonic()
        self._now = (cell, doing, started)

    def ended(self, cell: Cell, entry: Ended) -> None:
        """See `runner.Watcher`."""
        self._now = None
        self._pending = [other for other in self._pending if other is not cell]
        self._rows.pop(cell.key, None)  # it had failed, and was run again
        if not self._is_live:
            outcome = entry.reason and f"{MISSING}: {entry.reason}"
            notes = "".join(f" ({note})" for note in entry.notes)
            print(f"{self._place()} {printable(cell.title)}, repeat {cell.repeat}: {outcome or f'done in {duration(entry.took_s)}'}"
                  f"{notes}; {self._left()}", file=sys.stderr, flush=True)  # fmt: skip

    def _place(self) -> str:
        return f"[{len(self._sweep.cells) - len(self._pending)}/{len(self._sweep.cells)}]"

    def _left(self) -> str:
        if not self._pending:
            return "none left"
        seconds, unknown = needed_s(self._pending, self._sweep.cells, self._sweep.folder.ended)
        parts = [f"about {duration(seconds)} left"] if seconds or not unknown else []
        parts += [f"{quantity(unknown, 'cell')} of unknown time"] if unknown else []
        return " and ".join(parts)

    def _table(self) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        ended = self._sweep.folder.ended
        done = [cell for cell in self._sweep.cells if cell.key in ended]
        table = Table("cell", "repeat", "outcome", box=None, padding=(0, 2, 0, 0))
        for cell in done[-SHOWN_CELLS:]:
            entry = ended[cell.key]
            text = duration(entry.took_s) if entry.status == DONE else f"{MISSING}: {printable(entry.reason, 60)}"
            table.add_row(Text(printable(cell.title)), str(cell.repeat), Text(text, "red" if entry.status == FAILED else ""))
        if self._now is not None:
            cell, doing, started = self._now
            table.add_row(
                Text(printable(cell.title), "bold"), str(cell.repeat), Text(f"{doing}, {duration(time.monotonic() - started)}")
            )
        return Group(Text(f"{self._place()} {self._left()}", "bold"), table, *self._figures(done))

    def _figures(self, done: Sequence[Cell]) -> list[Any]:
        """The first table so far."""
        from rich.text import Text

        if not done:
            return []
        if self._shown[0] != len(done):
            sweep = self._sweep
            for place, cell in enumerate(sweep.cells):
                if cell.key in sweep.folder.ended and cell.key not in self._rows:  # run folders are read once
                    self._rows[cell.key] = rows_of(cell, sweep.folder.run_of(cell), sweep.entry(cell), place)
            rows = [row for cell in done for row in self._rows[cell.key]]
            self._shown = (len(done), titled_lines(make_tables(self._sweep.plan, rows)[0])[:40])
        return [Text("\n".join(self._shown[1]))]
