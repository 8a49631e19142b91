"""What follows a run besides its phases: each watcher has a start, a stop, and facts for the
manifest."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from llama_load.loadgen.dispatch.dispatcher import Dispatcher
from llama_load.loadgen.live import LiveFigures
from llama_load.loadgen.run.run_clock import RunClock, Task
from llama_load.run_folder import RunWriter, StageRecord
from llama_load.run_folder.observed.record import RequestRecord

if TYPE_CHECKING:
    import pyarrow as pa


class RunUnderWay(Protocol):
    """A run as its watchers see it: they may end it."""

    clock: RunClock
    dispatcher: Dispatcher
    live: LiveFigures

    @property
    def end_reason(self) -> str | None:
        """Why the run is over; None while it is not."""

    @property
    def phase(self) -> str:
        """The present phase in a few words."""

    @property
    def segment(self) -> tuple[int, int]:
        """Which of the run's loads is the present one, from 0 on, and how many there are."""

    @property
    def left_s(self) -> float | None:
        """Seconds left of this measurement; None: not known, or none is going on."""

    def end(self, reason: str) -> None:
        """End the run. Only the first reason counts."""

    def abort(self, sentence: str) -> None:
        """End the run because it cannot work, with this sentence."""

    def end_early(self) -> None:
        """Enough is known: end the measurement as its time would."""

    def give_up_arrivals(self) -> None:
        """No user takes the remaining arrivals: end the run if all of them were scheduled before
        now."""


def report_end(sentence: str) -> None:
    """Print why the run ends now."""
    print(f"{sentence}; the run ends", file=sys.stderr, flush=True)


class Watcher:
    """Follows a run. Does nothing by itself: subclasses override what concerns them. `columns`:
    those of records that it needs."""

    columns: Sequence[str] = ()

    def start(self) -> None:
        """The first phase comes next. May wait, not for long."""

    def before_measuring(self) -> None:
        """A measurement comes next. May wait, not for long."""

    def after_measuring(self, stages: Sequence[StageRecord]) -> None:
        """A measurement and all its requests have ended; `stages` are its stages, if the run has
        any."""

    def add_record(self, record: RequestRecord) -> None:
        """A request of this process has ended, or was cancelled. Must not wait."""
        if self.columns:
            self.add([[getattr(record, name) for name in self.columns]])

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Records of workers are on disk. Must not wait."""
        if self.columns:
            columns = [batch.column(name).to_pylist() for name in self.columns]
            self.add(zip(*columns, strict=True))

    def add(self, rows: Iterable[Sequence[Any]]) -> None:
        """The values of `columns` of these records."""

    def stop(self) -> None:
        """All records have arrived. Called once."""

    def facts(self, writer: RunWriter) -> None:
        """After `stop`: write into the manifest what this watcher knows."""


class LoopWatcher(Watcher):
    """Looks at the run every `every_s` seconds until it ends."""

    every_s = 1.0

    def __init__(self, run: RunUnderWay) -> None:
        self.run = run
        self._task: Task | None = None

    def look(self) -> None:
        """Look at the run, and end it if need be."""

    def start(self) -> None:
        """See `Watcher.start`."""
        self._task = self.run.clock.spawn(self._watch)

    def stop(self) -> None:
        """See `Watcher.stop`."""
        if self._task is not None:
            self._task.kill(block=False)

    def _watch(self) -> None:
        while self.run.end_reason is None:
            self.run.clock.sleep(self.every_s)
            if self.run.end_reason is None:
                self.look()
