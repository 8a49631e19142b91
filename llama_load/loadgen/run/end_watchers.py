"""What ends a run before its last phase: --abort-if, and users that send nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from llama_load.loadgen.run.in_thread import in_thread
from llama_load.loadgen.run.watcher import LoopWatcher, RunUnderWay, report_end
from llama_load.run_folder import RunWriter
from llama_load.run_folder.manifest import Aborted
from llama_load.run_folder.observed.record import CANCELLED, UNFINISHED
from llama_load.run_folder.vocabulary.abort import LATENCIES, RunningFigures
from llama_load.run_folder.vocabulary.thresholds import Threshold

# A run without a request after this time is aborted: its tasks do not call self.chat. With -t: this
# long after the run time.
FIRST_REQUEST_WITHIN_S = 60.0
FIRST_REQUEST_AFTER_TIME_S = 5.0
# With a run time: arrivals that no user has taken this long after the last scheduled instant are
# given up.
ARRIVALS_TAKEN_WITHIN_S = 5.0
IDLE_EVERY_S = 0.5
JUDGE_EVERY_S = 2.0


class AbortWatcher(LoopWatcher):
    """Ends the run as soon as an --abort-if condition is true."""

    every_s = JUDGE_EVERY_S
    columns = ("warmup", "status", *(f"{name}_ms" for name in LATENCIES))

    def __init__(self, run: RunUnderWay, thresholds: Sequence[Threshold]) -> None:
        super().__init__(run)
        self._thresholds = thresholds
        self._figures = RunningFigures()
        self._aborted_by: Aborted | None = None

    def add(self, rows: Iterable[Sequence[Any]]) -> None:
        """See `Watcher.add`."""
        for warmup, status, *latencies_ms in rows:
            if not warmup and status not in UNFINISHED:
                self._figures.add(status, latencies_ms)

    def look(self) -> None:
        """See `LoopWatcher.look`."""
        so_far = self._figures.so_far()
        result = in_thread(lambda: so_far.judge(self._thresholds))
        if result is not None and self.run.end_reason is None:
            self._aborted_by = Aborted(result.text, result.value or 0.0)
            report_end(
                f"--abort-if {result.text}: {result.value:g} after {so_far.ended} requests"
            )
            self.run.end("aborted")

    def facts(self, writer: RunWriter) -> None:
        """See `Watcher.facts`."""
        writer.manifest.aborted_by = self._aborted_by


class IdleWatcher(LoopWatcher):
    """Ends a run in which no user sends requests (any more), which would otherwise never end.
    `sending` gives the requests in flight, `first_s` is when the first one is scheduled."""

    every_s = IDLE_EVERY_S
    columns = ("status",)

    def __init__(
        self,
        run: RunUnderWay,
        sending: Callable[[], int],
        run_time_s: float | None,
        first_s: float = 0.0,
    ) -> None:
        super().__init__(run)
        self._sending = sending
        self._run_time_s = run_time_s
        self._patience_s = first_s
        if run_time_s is None:
            self._patience_s += FIRST_REQUEST_WITHIN_S
        else:
            self._patience_s += run_time_s + FIRST_REQUEST_AFTER_TIME_S
        self._active_s = 0.0

    def start(self) -> None:
        """See `Watcher.start`."""
        self._active_s = self.run.clock.now_s
        super().start()

    def add(self, rows: Iterable[Sequence[Any]]) -> None:
        """See `Watcher.add`."""
        if any(status != CANCELLED for (status,) in rows):
            self._is_active()

    def _is_active(self) -> None:
        self._active_s = self.run.clock.now_s
        self._patience_s = math.inf

    def look(self) -> None:
        """See `LoopWatcher.look`."""
        now_s = self.run.clock.now_s
        if self._sending():
            self._is_active()
        elif now_s - self._active_s > self._patience_s:
            self.run.abort(
                "no request was sent; do the tasks of the locustfile call self.chat or "
                "self.complete?"
            )
        elif (
            self._run_time_s is not None
            and now_s - self._active_s > ARRIVALS_TAKEN_WITHIN_S
        ):
            self.run.give_up_arrivals()
