"""The controlling side of a run, in one process or on the master: its phases and its records.
Watchers do what else a run needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from llama_load.loadgen.dispatch.dispatcher import Dispatcher
from llama_load.loadgen.live import LiveFigures
from llama_load.loadgen.preflight.prepare import Prepared
from llama_load.loadgen.run.host import RunHost
from llama_load.loadgen.run.in_thread import in_thread
from llama_load.loadgen.run.phase_runner import PhaseRunner
from llama_load.loadgen.run.progress import Progress
from llama_load.loadgen.run.run_clock import RunClock
from llama_load.loadgen.run.watcher import RunUnderWay, Watcher
from llama_load.loadgen.run.watchers import watchers_of
from llama_load.outside.terminal import announce
from llama_load.run_folder import Run
from llama_load.run_folder.observed.record import RequestRecord
from llama_load.run_folder.observed.worker_health import WorkerHealth
from llama_load.servers.balance import Balancer

if TYPE_CHECKING:
    import pyarrow as pa

WatchersOf = Callable[[Prepared, RunHost, RunUnderWay], list[Watcher]]


class RunController:
    """One run: its dispatcher, its phases, its end."""

    def __init__(
        self,
        prepared: Prepared,
        host: RunHost,
        clock: RunClock | None = None,
        watchers: WatchersOf = watchers_of,
    ) -> None:
        self.prepared = prepared
        self._host = host
        self.clock = clock or RunClock()
        self.fault: str | None = None  # see `abort`
        self.end_reason: str | None = None
        self.live = LiveFigures()
        balancer = Balancer(len(prepared.targets), prepared.options.balance)
        self.dispatcher = Dispatcher(
            prepared.plans, host, balancer=balancer, now_ns=self.clock.now_ns
        )
        self.progress = Progress(self, is_open=prepared.load.model.is_open)
        # which counts from when the others are ready to measure
        self._watchers = [*watchers(prepared, host, self), self.progress]
        self._phase_runner = PhaseRunner(prepared, host, self, self._watchers)

    def open(self) -> None:
        """Begin the first phase."""
        for watcher in self._watchers:
            watcher.start()
        self._phase_runner.begin_next()

    # ------------------------------------------------------------------ phases

    @property
    def phase(self) -> str:
        """See `RunUnderWay.phase`."""
        return self._phase_runner.what

    @property
    def segment(self) -> tuple[int, int]:
        """See `RunUnderWay.segment`."""
        return self._phase_runner.segment

    @property
    def left_s(self) -> float | None:
        """See `RunUnderWay.left_s`."""
        return self._phase_runner.left_s

    # ------------------------------------------------------------------ records

    def add_record(self, record: RequestRecord) -> None:
        """A request of this process has ended, or was cancelled."""
        for watcher in self._watchers:
            watcher.add_record(record)

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Records of workers are on disk."""
        for watcher in self._watchers:
            watcher.add_batch(batch)

    # ------------------------------------------------------------------ the end

    def end(self, reason: str) -> None:
        """See `RunUnderWay.end`."""
        if self.end_reason is None:
            self.end_reason = reason
            # stopping would kill the calling user's greenlet half-way
            self.clock.spawn(self._host.stop)

    def end_early(self) -> None:
        """See `RunUnderWay.end_early`."""
        self._phase_runner.end_early()

    def give_up_arrivals(self) -> None:
        """See `RunUnderWay.give_up_arrivals`."""
        self._phase_runner.give_up_arrivals()

    def abort(self, sentence: str) -> None:
        """See `RunUnderWay.abort`."""
        if self.fault is None:
            self.fault = sentence
            self.end("stopped")

    def stopping(self, reason: str) -> None:
        """The users are being stopped: hand out no more leases. The reason counts only if the run
        has none yet."""
        self.end_reason = self.end_reason or reason
        self._phase_runner.stopping()
        self.dispatcher.close()

    def finish(self, health: Sequence[WorkerHealth]) -> Run:
        """Write the run's table and its manifest once all records have arrived; the run, whose
        folder stays locked until `release`.

        If the folder cannot be written, `Run.unwritten` is set.
        """
        self.close(health)
        writer = self.prepared.writer
        # In a thread, because a long run takes a minute: signals, workers and the page are answered
        # meanwhile.
        announce("writing requests.parquet", writer.appended)
        return in_thread(writer.finish)

    def release(self) -> None:
        """Others may write the folder."""
        self.prepared.writer.release()

    @property
    def servers_started_s(self) -> dict[str, float]:
        """When servers were started (Unix time), by their URLs, where it is known."""
        known = {}
        for target in self.prepared.targets:
            if target.facts.started_s is not None:
                known[target.address.url] = target.facts.started_s
        return known

    def close(self, health: Sequence[WorkerHealth]) -> None:
        """End the last phase, stop the watchers, and write what is known of the run into its
        manifest."""
        self._phase_runner.close()
        for watcher in self._watchers:
            watcher.stop()
        writer = self.prepared.writer
        writer.manifest.end = self.end_reason or "stopped"
        writer.manifest.workers = list(health)
        writer.manifest.lost = self.dispatcher.ledger.lost
        for watcher in self._watchers:
            watcher.facts(writer)
