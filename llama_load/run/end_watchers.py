"""What ends a run before its last phase: --abort-if, --until, --end-below, servers that are gone, users that send nothing."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from llama_load.metrics.abort import LATENCIES, RunningFigures
from llama_load.metrics.thresholds import Threshold
from llama_load.observed.record import UNFINISHED, RequestRecord
from llama_load.run.goodput_watch import GoodputWatch
from llama_load.run.in_thread import in_thread
from llama_load.run.server_watch import LOOK_EVERY_S, ServerWatch
from llama_load.run.until_watch import UntilWatch
from llama_load.run.watcher import LoopWatcher, RunUnderWay, Watcher
from llama_load.run_folder import Aborted, RunWriter

if TYPE_CHECKING:
    import pyarrow as pa

# A run without a request after this time is aborted: its tasks do not call self.chat. With -t: this long after the run time.
FIRST_REQUEST_WITHIN_S = 60.0
FIRST_REQUEST_AFTER_TIME_S = 5.0
# With a run time: arrivals that no user has taken this long after the last scheduled instant are given up.
ARRIVALS_TAKEN_WITHIN_S = 5.0
IDLE_EVERY_S, JUDGE_EVERY_S = 0.5, 2.0


def _report(sentence: str) -> None:
    print(f"{sentence}; the run ends", file=sys.stderr, flush=True)


class AbortWatcher(LoopWatcher):
    """Ends the run as soon as an --abort-if condition is true."""

    every_s = JUDGE_EVERY_S

    def __init__(self, run: RunUnderWay, thresholds: Sequence[Threshold]) -> None:
        super().__init__(run)
        self._thresholds = thresholds
        self._figures = RunningFigures()
        self._aborted_by: Aborted | None = None

    def add_record(self, record: RequestRecord) -> None:
        """See `Watcher.add_record`."""
        if not record.warmup and record.status not in UNFINISHED:
            self._figures.add(record.status, (record.ttft_ms, record.tpot_ms, record.e2el_ms))

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """See `Watcher.add_batch`."""
        columns = [batch.column(name).to_pylist() for name in ("warmup", "status", *(f"{name}_ms" for name in LATENCIES))]
        for warmup, status, *latencies_ms in zip(*columns, strict=True):
            if not warmup and status not in UNFINISHED:
                self._figures.add(status, latencies_ms)

    def look(self) -> None:
        """See `LoopWatcher.look`."""
        so_far = self._figures.so_far()
        result = in_thread(lambda: so_far.judge(self._thresholds))
        if result is not None and self.run.end_reason is None:
            self._aborted_by = Aborted(result.text, result.value or 0.0)
            _report(f"--abort-if {result.text}: {result.value:g} after {so_far.ended} requests")
            self.run.end("aborted")

    def facts(self, writer: RunWriter) -> None:
        """See `Watcher.facts`."""
        writer.manifest.aborted_by = self._aborted_by


class UntilWatcher(LoopWatcher):
    """Ends the run as soon as the figure of --until is known."""

    every_s = JUDGE_EVERY_S

    def __init__(self, run: RunUnderWay, figure: UntilWatch) -> None:
        super().__init__(run)
        self._figure = figure

    def add_record(self, record: RequestRecord) -> None:
        """See `Watcher.add_record`."""
        self._figure.add(record)

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """See `Watcher.add_batch`."""
        self._figure.add_batch(batch)

    def look(self) -> None:
        """See `LoopWatcher.look`."""
        so_far = self._figure.so_far()
        if in_thread(lambda: self._figure.look(so_far)) and self.run.end_reason is None:
            _report(f"--until: {self._figure.at_end().sentence}")
            self.run.end_early()

    def facts(self, writer: RunWriter) -> None:
        """See `Watcher.facts`."""
        writer.manifest.until = self._figure.at_end()


class EndBelowWatcher(Watcher):
    """Ends the run once the share of --end-below is out of reach."""

    def __init__(self, run: RunUnderWay, goodput: GoodputWatch) -> None:
        self._run = run
        self._goodput = goodput
        self._shortfall: str | None = None

    def add_record(self, record: RequestRecord) -> None:
        """See `Watcher.add_record`."""
        self._goodput.add(record)
        self._look()

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """See `Watcher.add_batch`."""
        self._goodput.add_batch(batch)
        self._look()

    def facts(self, writer: RunWriter) -> None:
        """See `Watcher.facts`."""
        writer.manifest.ended_below = self._shortfall

    def _look(self) -> None:
        if (shortfall := self._goodput.shortfall) and self._run.end_reason is None:
            self._shortfall = shortfall
            _report(f"--end-below: {shortfall}")
            self._run.end_early()


class ServersWatcher(LoopWatcher):
    """Ends the run when no server is left, and records what the servers' processes and logs show."""

    def __init__(self, run: RunUnderWay, servers: ServerWatch) -> None:
        super().__init__(run)
        self._servers = servers

    def start(self) -> None:
        """See `Watcher.start`. Servers on other machines cannot be watched."""
        if self._servers.can_look:
            super().start()

    def _watch(self) -> None:
        while not self._servers.look():  # also while the last requests end: which servers went away is reported
            self.run.clock.sleep(LOOK_EVERY_S)
        _report("no server is left")
        self.run.end("server")

    def facts(self, writer: RunWriter) -> None:
        """See `Watcher.facts`."""
        self._servers.record(writer)


class IdleWatcher(LoopWatcher):
    """Ends a run in which no user sends requests (any more), which would otherwise never end. `sending` gives the requests in
    flight, `first_s` is when the first one is scheduled."""

    every_s = IDLE_EVERY_S

    def __init__(self, run: RunUnderWay, sending: Callable[[], int], run_time_s: float | None, first_s: float = 0.0) -> None:
        super().__init__(run)
        self._sending = sending
        self._run_time_s = run_time_s
        self._patience_s = FIRST_REQUEST_WITHIN_S if run_time_s is None else run_time_s + FIRST_REQUEST_AFTER_TIME_S
        self._patience_s += first_s
        self._records, self._active_s = 0, 0.0

    def start(self) -> None:
        """See `Watcher.start`."""
        self._active_s = self.run.clock.now_s
        super().start()

    def look(self) -> None:
        """See `LoopWatcher.look`."""
        now_s = self.run.clock.now_s
        if self._sending() or self.run.records != self._records:
            self._records, self._active_s, self._patience_s = self.run.records, now_s, math.inf
        elif now_s - self._active_s > self._patience_s:
            self.run.abort("no request was sent; do the tasks of the locustfile call self.chat or self.complete?")
        elif self._run_time_s is not None and now_s - self._active_s > ARRIVALS_TAKEN_WITHIN_S:
            self.run.give_up_arrivals()
