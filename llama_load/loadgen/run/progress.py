"""The progress of a run on stderr: a live line on a terminal, elsewhere a plain line every 10 s."""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import gevent

from llama_load.loadgen.run.watcher import RunUnderWay, Watcher
from llama_load.run_folder.observed.record import ABORTED, CANCELLED, OK
from llama_load.tables.bounded_console import LEAST_LIVE_WIDTH, bounded_console

REFRESH_S = 0.25
PLAIN_EVERY_S = 10.0
# Seconds in which an open loop's requests in flight are compared, and the growth that no burst of
# arrivals makes.
BACKLOG_S = 15
LEAST_GROWTH = 5
# Columns of the bar, where the line leaves room for a long or for a short one.
LONG_BAR = 40
SHORT_BAR = 8
WIDE = 130
# Columns of the phase at least, and of the time with the gaps between the parts.
PHASE = 9
CLOCK_AND_GAPS = len("0:00:00") + 3
# The sparkline of output: so many steps of a second, in characters from no output to the most.
# Fewer steps show nothing.
SPARK_STEPS = 20
SPARKS = "▁▂▃▄▅▆▇█"
LEAST_SPARK = 5


@dataclass(slots=True)
class Counts:
    """The figures of the progress line. `total` is None where the run time ends the phase."""

    phase: str = "preparing"
    is_measuring: bool = False
    done: int = 0
    total: int | None = None
    in_flight: int = 0
    failed: int = 0
    output_tokens: int = 0
    since: float = 0.0
    left_s: float | None = None  # until the measurement is over; None: not known
    segment: int = (
        0  # which of the run's loads, one after the other, and how many there are
    )
    segments: int = 1
    objection: str = ""  # what makes the figures doubtful at present
    spark: str = ""  # output of the last seconds, see `sparkline`

    @property
    def share(self) -> float | None:
        """How much of the run is over, from 0 to 1; None: not known. Loads count alike, and
        warm-ups nothing."""
        share = None
        if not self.is_measuring:
            share = 0.0
        elif self.total:
            share = self.done / self.total
        elif self.left_s is not None:
            elapsed_s = time.monotonic() - self.since
            share = elapsed_s / max(elapsed_s + self.left_s, 1e-9)

        if share is None:
            return None
        return (self.segment + min(share, 1.0)) / self.segments

    def line(self) -> str:
        """`12/64 · 8 in flight · 310 tok/s · 0:12 left`."""
        of = f"/{self.total}" if self.total is not None else ""
        parts = [f"{self.done}{of}", f"{self.in_flight} in flight"]
        if self.failed:
            parts.append(f"{self.failed} failed")
        if self.objection:
            parts.append(self.objection)

        seconds = time.monotonic() - self.since
        if self.since and seconds > 0.5:
            rate = f"{self.output_tokens / seconds:.0f} tok/s"
            parts.append(f"{self.spark} {rate}" if self.spark else rate)
        if self.left_s is not None:
            parts.append(f"{_clock(self.left_s)} left")
        return " · ".join(parts)


def sparkline(rates: Sequence[float], columns: int) -> str:
    """The newest of these rates in so many columns, a character each, against their maximum.

    Empty where there is no room for them, or where nothing came. 0, 50 and 100 tok/s: ▁▅█.
    """
    rates = rates[-min(SPARK_STEPS, columns) :] if columns > 0 else ()
    if len(rates) < LEAST_SPARK or not max(rates) > 0:
        return ""

    top = len(SPARKS) - 1
    most = max(rates)
    drawn = ""
    for rate in rates:
        share = max(rate, 0.0) / most
        drawn += SPARKS[math.floor(share * top + 0.5)]
    return drawn


def shown_phase(phase: str, width: int) -> str:
    """The phase as a terminal of this width shows it: `stage 4` instead of `stage 4 measuring`."""
    short = phase.removesuffix(" measuring")
    return phase if width >= WIDE else short


def room_for_spark(counts: Counts, width: int) -> int:
    """Columns that a terminal of this width has left in the live line."""
    phase = shown_phase(counts.phase, width)
    taken = max(PHASE, len(phase)) + _bar_columns(width) + CLOCK_AND_GAPS
    return width - taken - len(counts.line()) - len(" ")


def can_spark(encoding: str) -> bool:
    """Whether text in this encoding can have a sparkline."""
    try:
        SPARKS.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


class Backlog:
    """Requests in flight of an open loop, once a second: does the server fall behind?"""

    def __init__(self) -> None:
        self._in_flight: deque[int] = deque(maxlen=BACKLOG_S)
        self._last_s = -math.inf

    def look(self, now_s: float, in_flight: int) -> None:
        """So many are in flight."""
        if now_s - self._last_s >= 1:
            self._last_s = now_s
            self._in_flight.append(in_flight)

    @property
    def objection(self) -> str:
        """Empty unless all of the last seconds had more in flight than all of the first ones."""
        counts = list(self._in_flight)
        third = BACKLOG_S // 3
        if len(counts) < BACKLOG_S:
            return ""
        growth = min(counts[-third:]) - max(counts[:third])
        return "growing: the server falls behind" if growth >= LEAST_GROWTH else ""


def _clock(seconds: float) -> str:
    """12 s as 0:12, two hours as 2:00:00."""
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{rest:02}"
    return f"{minutes}:{rest:02}"


class Progress(Watcher):
    """Counts the records since the present measurement began, and shows the `Counts` on stderr."""

    columns = ("status", "output_tokens")

    def __init__(self, run: RunUnderWay, *, is_open: bool = False) -> None:
        self._run = run
        self._backlog = Backlog() if is_open else None
        self._since_s = run.clock.now_s
        self._failed = 0
        self._output_tokens = 0
        self._greenlet: gevent.Greenlet | None = None

    @property
    def is_drawn(self) -> bool:
        """Whether a person sees it go on."""
        return sys.stderr.isatty()

    def start(self) -> None:
        """See `Watcher.start`."""
        if self.is_drawn:
            from rich.progress import Progress as Bar

            console = bounded_console(stderr=True, least_width=LEAST_LIVE_WIDTH)
            bar = Bar(
                *bar_columns(console.width),
                console=console,
                auto_refresh=False,
                transient=True,
            )
            with_spark = can_spark(console.encoding)
            self._greenlet = gevent.spawn(self._run_live, bar, with_spark)
        else:
            self._greenlet = gevent.spawn(self._run_plain)

    def before_measuring(self) -> None:
        """See `Watcher.before_measuring`."""
        self._since_s = self._run.clock.now_s
        self._failed = 0
        self._output_tokens = 0

    def add(self, rows: Iterable[Sequence[Any]]) -> None:
        """See `Watcher.add`."""
        for status, output_tokens in rows:
            if status != CANCELLED:
                self._failed += status not in (OK, ABORTED)
                self._output_tokens += output_tokens or 0

    def counts(self) -> Counts:
        """How far the run is."""
        ledger = self._run.dispatcher.ledger
        assigner = self._run.dispatcher.assigner
        if not assigner.has_begun:
            return Counts()
        segment, segments = self._run.segment
        return Counts(
            phase=self._run.phase,
            segment=segment,
            segments=segments,
            done=assigner.phase.pool.ended,
            total=assigner.phase.total,
            is_measuring=assigner.measuring,
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

    def _run_live(self, bar: Any, with_spark: bool) -> None:
        with bar:
            task = bar.add_task("preparing", total=None, line="")
            while True:
                counts = self.counts()
                if self._backlog is not None:
                    self._backlog.look(self._run.clock.now_s, counts.in_flight)
                    counts.objection = self._backlog.objection
                if with_spark and counts.is_measuring:
                    rates = self._run.live.last_output(SPARK_STEPS)
                    room = room_for_spark(counts, bar.console.width)
                    counts.spark = sparkline(rates, room)
                bar.update(
                    task,
                    description=shown_phase(counts.phase, bar.console.width),
                    completed=counts.done,
                    total=counts.total,
                    line=counts.line(),
                    refresh=True,
                )
                gevent.sleep(REFRESH_S)

    def _run_plain(self) -> None:
        while True:
            gevent.sleep(PLAIN_EVERY_S)
            counts = self.counts()
            print(f"{counts.phase}: {counts.line()}", file=sys.stderr, flush=True)


def bar_columns(width: int = WIDE) -> list[Any]:
    """The parts of the live line on a terminal of so many columns: the phase, a bar, counts, the
    time."""
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

    phase = TextColumn(f"{{task.description:<{PHASE}}}")
    counts = TextColumn("{task.fields[line]}")
    bar = BarColumn(_bar_columns(width))
    return [phase, bar, counts, TimeElapsedColumn()]


def _bar_columns(width: int) -> int:
    return LONG_BAR if width >= WIDE else SHORT_BAR
