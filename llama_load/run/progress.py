"""The progress of a run on stderr: a live line on a terminal, elsewhere a plain line every 10 s."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import gevent

from llama_load.observed.record import ABORTED, CANCELLED, OK
from llama_load.run.watcher import RunUnderWay, Watcher
from llama_load.tables.bounded_console import LEAST_LIVE_WIDTH, bounded_console

REFRESH_S = 0.25
PLAIN_EVERY_S = 10.0


@dataclass(slots=True)
class Counts:
    """The figures of the progress line. `total` is None where the run time ends the phase."""

    phase: str = "preparing"
    done: int = 0
    total: int | None = None
    in_flight: int = 0
    failed: int = 0
    output_tokens: int = 0
    since: float = 0.0
    left_s: float | None = None  # until the measurement is over; None: not known

    def line(self) -> str:
        """`12/64 · 8 in flight · 310 tok/s · 0:12 left`."""
        seconds = max(time.monotonic() - self.since, 1e-9) if self.since else 0.0
        rate = f"{self.output_tokens / seconds:.0f} tok/s" if seconds > 0.5 else ""
        of = f"/{self.total}" if self.total is not None else ""
        failed = f"{self.failed} failed" if self.failed else ""
        left = "" if self.left_s is None else f"{_clock(self.left_s)} left"
        return " · ".join(part for part in (f"{self.done}{of}", f"{self.in_flight} in flight", failed, rate, left) if part)


def _clock(seconds: float) -> str:
    """12 s as 0:12, two hours as 2:00:00."""
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Progress(Watcher):
    """Counts the records since the present measurement began, and shows the `Counts` on stderr."""

    columns = ("status", "output_tokens")

    def __init__(self, run: RunUnderWay) -> None:
        self._run = run
        self._since_s, self._failed, self._output_tokens = run.clock.now_s, 0, 0
        self._greenlet: gevent.Greenlet | None = None

    def start(self) -> None:
        """See `Watcher.start`."""
        if sys.stderr.isatty():
            from rich.progress import Progress as Bar

            console = bounded_console(stderr=True, least_width=LEAST_LIVE_WIDTH)
            bar = Bar(*bar_columns(), console=console, auto_refresh=False, transient=True)
            self._greenlet = gevent.spawn(self._run_live, bar)
        else:
            self._greenlet = gevent.spawn(self._run_plain)

    def before_measuring(self) -> None:
        """See `Watcher.before_measuring`."""
        self._since_s, self._failed, self._output_tokens = self._run.clock.now_s, 0, 0

    def add(self, rows: Iterable[Sequence[Any]]) -> None:
        """See `Watcher.add`."""
        for status, output_tokens in rows:
            if status != CANCELLED:
                self._failed += status not in (OK, ABORTED)
                self._output_tokens += output_tokens or 0

    def counts(self) -> Counts:
        """How far the run is."""
        ledger, assigner = self._run.dispatcher.ledger, self._run.dispatcher.assigner
        if not assigner.has_begun:
            return Counts()
        return Counts(
            phase=self._run.phase,
            done=assigner.phase.pool.ended,
            total=assigner.phase.total,
            in_flight=ledger.under_way,
            failed=self._failed,
            output_tokens=self._output_tokens,
            since=self._since_s,
            left_s=self._run.left_s,
        )

    def stop(self) -> None:
        """See `Watcher.stop`; removes the live line."""
        if self._greenlet is not None:
            self._greenlet.kill()

    def _run_live(self, bar: Any) -> None:
        with bar:
            task = bar.add_task("preparing", total=None, line="")
            while True:
                counts = self.counts()
                bar.update(
                    task, description=counts.phase, completed=counts.done, total=counts.total, line=counts.line(), refresh=True
                )
                gevent.sleep(REFRESH_S)

    def _run_plain(self) -> None:
        while True:
            gevent.sleep(PLAIN_EVERY_S)
            counts = self.counts()
            print(f"{counts.phase}: {counts.line()}", file=sys.stderr, flush=True)


def bar_columns() -> list[Any]:
    """The parts of the live line: the phase, a bar, counts, the time."""
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

    phase = TextColumn("{task.description:<9}")
    counts = TextColumn("{task.fields[line]}")
    return [phase, BarColumn(), counts, TimeElapsedColumn()]
