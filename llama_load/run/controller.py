"""The controlling side of a run, in one process or on the master: dispatching, progress, the end of the run, the report."""

from __future__ import annotations

import math
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

import gevent

from llama_load.analysis.earlier_runs import sent_before
from llama_load.analysis.results import Results, analyze
from llama_load.dispatch.dispatcher import Dispatcher
from llama_load.errors import UsageError
from llama_load.live import LiveFigures
from llama_load.live.figures import GroupKey
from llama_load.metrics.abort import RunningFigures
from llama_load.observed.record import OK, RequestRecord
from llama_load.observed.server_counters import ServerCounters
from llama_load.observed.server_description import NO_ANSWER
from llama_load.observed.worker_health import WorkerHealth
from llama_load.preflight.prepare import Prepared
from llama_load.reports.show import announce
from llama_load.reports.write import try_to_write_reports
from llama_load.run.goodput_watch import GoodputWatch, goodput_watch
from llama_load.run.host import RunHost
from llama_load.run.in_thread import in_thread
from llama_load.run.live_meters import present_values
from llama_load.run.phase_runner import PhaseRunner
from llama_load.run.progress import Counts, Progress
from llama_load.run.server_identity import changes_since
from llama_load.run.server_watch import ServerWatch
from llama_load.run.telemetry_process import TelemetryRun
from llama_load.run.until_watch import UntilWatch, until_watch
from llama_load.run_folder import Aborted, Run, StageRecord, write_manifest
from llama_load.targets.balance import Balancer
from llama_load.targets.counters import read_counters

if TYPE_CHECKING:
    import pyarrow as pa

# A run without a request after this time is aborted: its tasks do not call self.chat. With -t: this long after the run time.
FIRST_REQUEST_WITHIN_S = 60.0
FIRST_REQUEST_AFTER_TIME_S = 5.0
# With a run time: arrivals that no user has taken this long after the last scheduled instant are given up.
ARRIVALS_TAKEN_WITHIN_S = 5.0
WATCH_EVERY_S = 0.5
JUDGE_EVERY_S = 2.0
# Half the width of the shortest steps of `TimeSeries`, so that none is left out.
SAMPLE_EVERY_S = 0.5
# How long servers may take to report their counters between two measurements.
COUNTERS_WITHIN_S = 6.0
# Time limit for probing the servers again at the end.
IDENTITY_WITHIN_S = 5.0


class RunController:
    """One run: its dispatcher, its phases, its end."""

    def __init__(self, prepared: Prepared, host: RunHost) -> None:
        self.prepared = prepared
        self._host = host
        self._greenlets: list[gevent.Greenlet] = []
        self._fault: str | None = None
        self._counters_before: ServerCounters | None = None
        self._measurements = 0
        self._since = time.monotonic()
        self._failed = self._output_tokens = self._seen = 0
        self.end_reason: str | None = None
        balancer = Balancer(len(prepared.targets), prepared.options.balance)
        self.dispatcher = Dispatcher(prepared.plans, host, balancer=balancer)
        self._phase_runner = PhaseRunner(prepared, self.dispatcher, host, self)
        self._progress = Progress(self.counts)
        self._server_watch = ServerWatch(prepared.local_servers, prepared.options.server_grace_s)
        self._abort_if = prepared.options.goals.abort_if
        self._figures = RunningFigures()
        self.live = LiveFigures()
        self._until = until_watch(prepared)
        self._goodput = goodput_watch(prepared)
        self.telemetry = TelemetryRun(prepared)

    def open(self) -> None:
        """Begin the first phase."""
        self.telemetry.wait_until_ready()
        self._greenlets += [gevent.spawn(self._watch), gevent.spawn(self._sample)]
        self._greenlets.append(gevent.spawn(self._server_watch.watch, self._server_ended))
        if self._abort_if:
            self._greenlets.append(gevent.spawn(self._watch_thresholds))
        if self._until is not None:
            self._greenlets.append(gevent.spawn(self._watch_until, self._until))
        self.phase_over()

    def phase_over(self) -> None:
        """See `PhaseListener.phase_over`. (Spawned, because the calling user's greenlet may be killed or have a timeout.)"""
        self._greenlets.append(gevent.spawn(self._phase_runner.next_phase))

    def heard(self, status: str, output_tokens: int | None, latencies_ms: Sequence[float | None], *, warmup: bool) -> None:
        """Count a record for the progress display and for --abort-if (see `RunningFigures`)."""
        if self._abort_if and not warmup:
            self._figures.add(status, latencies_ms)
        self._seen += 1
        self._failed += status != OK
        self._output_tokens += output_tokens or 0

    def add_record(self, record: RequestRecord) -> None:
        """Count a record of this process for the live figures, --until and --end-below."""
        self.live.add(record)
        if self._until is not None:
            self._until.add(record)
        if self._goodput is not None:
            self._goodput.add(record)
            self._end_below(self._goodput)

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Count the records of a worker for the live figures, --until and --end-below."""
        self.live.add_batch(batch)
        if self._until is not None:
            self._until.add_batch(batch)
        if self._goodput is not None:
            self._goodput.add_batch(batch)
            self._end_below(self._goodput)

    def end(self, reason: str) -> None:
        """End the run. Only the first reason counts."""
        if self.end_reason is None:
            self.end_reason = reason
            gevent.spawn(self._host.stop)  # stopping would kill the calling user's greenlet half-way

    def abort(self, sentence: str) -> None:
        """End the run because it cannot work; `finish` raises this sentence as a UsageError."""
        if self._fault is None:
            self._fault = sentence
            self.end("stopped")

    def _server_ended(self) -> None:
        """No server is left: what is sent now can only fail."""
        print("no server is left; the run ends", file=sys.stderr, flush=True)
        self.end("server")

    def stopping(self, reason: str) -> None:
        """The users are being stopped: hand out no more leases. The reason counts only if the run has none yet."""
        self.end_reason = self.end_reason or reason
        self._phase_runner.stopping()
        self.dispatcher.close()

    def finish(self, health: Sequence[WorkerHealth]) -> tuple[Results, str]:
        """Write the run folder once all records have arrived; return the results and the text of the report.

        If the folder cannot be written, a message is printed and `Run.unwritten` is set. Raises UsageError after `abort`.
        """
        for greenlet in self._greenlets:
            greenlet.kill(block=False)
        self._phase_runner.close()
        self._progress.close()
        self.live.sample("ended", {}, {})
        writer = self.prepared.writer
        writer.manifest.end = self.end_reason or "stopped"
        writer.manifest.workers = list(health)
        writer.manifest.lost = self.dispatcher.lost
        writer.manifest.until = None if self._until is None else self._until.at_end()
        self._server_watch.record(writer)
        writer.manifest.server_changes += self._server_changes()
        self.telemetry.close()
        try:
            # In threads, because a long run takes a minute: signals, workers and the page are answered meanwhile.
            announce("writing requests.parquet", writer.appended)
            run = in_thread(writer.finish)
            announce("computing the figures", writer.appended)
            self._look_at_earlier_runs(run)
            results, text = in_thread(lambda: try_to_write_reports(analyze(run)))
        finally:
            writer.release()
        if results.run.unwritten is not None:
            print(f"llama-load: {results.run.unwritten}", file=sys.stderr)
        if self._fault is not None:
            raise UsageError(self._fault)
        return results, text

    def before_measuring(self) -> None:
        """A warm-up is over."""
        self.telemetry.sample()
        self._counters_before = self._counters()
        self._since, self._failed, self._output_tokens = time.monotonic(), 0, 0

    def after_measuring(self, stages: Sequence[StageRecord]) -> None:
        """A measurement and all its requests have ended: read what the servers counted during it."""
        self.telemetry.sample()
        before, after = self._counters_before, self._counters() if self._counters_before is not None else None
        found = None if before is None or after is None else after.since(before)
        if before is not None and after is not None and found is None:
            self.prepared.writer.manifest.server_changes.append("restarted while requests were measured: its counters were reset")
        if len(stages) == 1:
            stages[0].counters = found
        manifest = self.prepared.writer.manifest
        total = manifest.counters
        self._measurements += 1
        if self._measurements == 1:
            manifest.counters = found
        else:
            manifest.counters = None if found is None or total is None else total.plus(found)

    def _look_at_earlier_runs(self, run: Run) -> None:
        """Note in the manifest which prompts were sent before. An unreadable folder is reported and otherwise ignored."""
        started = {target.address.url: target.facts.started_s for target in self.prepared.targets}
        known = {url: at_s for url, at_s in started.items() if at_s is not None}
        try:
            run.manifest.prompts_sent_before = in_thread(lambda: sent_before(self.prepared.writer.path, run.records, known))
            in_thread(lambda: write_manifest(run.path, run.manifest))
        except Exception as error:
            print(f"earlier runs next to {run.path} cannot be read: {error}", file=sys.stderr)

    def _server_changes(self) -> list[str]:
        """What has changed on the servers since before the run."""
        probes, targets = self.prepared.probes, self.prepared.targets
        jobs = [gevent.spawn(changes_since, probe, target) for probe, target in zip(probes, targets, strict=True)]
        gevent.joinall(jobs, timeout=IDENTITY_WITHIN_S)
        gevent.killall(jobs, block=False)
        found = [job.value if isinstance(job.value, list) else [NO_ANSWER] for job in jobs]
        several = len(targets) > 1
        return [
            f"{target.address.url}: {change}" if several else change
            for target, changes in zip(targets, found, strict=True)
            for change in changes
        ]

    def _counters(self) -> ServerCounters | None:
        """The sum of the servers' counters; None unless every server has reported them."""
        targets = self.prepared.targets
        if not all(target.has_counters for target in targets):
            return None
        jobs = [gevent.spawn(read_counters, target, self.prepared.options.tls) for target in targets]
        gevent.joinall(jobs, timeout=COUNTERS_WITHIN_S)
        gevent.killall(jobs, block=False)
        known = [job.value for job in jobs if isinstance(job.value, ServerCounters)]
        return reduce(ServerCounters.plus, known) if len(known) == len(jobs) else None

    def counts(self) -> Counts:
        """How far the run is."""
        dispatcher = self.dispatcher
        if not dispatcher.has_begun:
            return Counts()
        return Counts(
            phase=self._phase_runner.what,
            done=dispatcher.phase.pool.ended,
            total=dispatcher.phase.total,
            in_flight=dispatcher.under_way,
            failed=self._failed,
            output_tokens=self._output_tokens,
            since=self._since,
            left_s=self._phase_runner.left_s,
        )

    def _sample(self) -> None:
        """Note what is in flight for the live figures."""
        urls = [target.address.url for target in self.prepared.targets]
        while True:
            held = self.dispatcher.requests_under_way()
            by_group = Counter(GroupKey(lease.workload, lease.stage, urls[lease.replica]) for lease in held)
            gauges: dict[str, float] = {
                "in_flight": len(held),
                "waiting": self.dispatcher.overdue,
                "users": self._host.users_asked(),
            }
            gauges |= {"workers": self._host.workers(), **self._host.gauges(), **present_values(self.telemetry.live.series())}
            self.live.sample(self._phase_runner.what, by_group, gauges)
            gevent.sleep(SAMPLE_EVERY_S)

    def _watch_thresholds(self) -> None:
        """End the run as soon as an --abort-if condition is true."""
        while self.end_reason is None:
            gevent.sleep(JUDGE_EVERY_S)
            so_far = self._figures.so_far()
            result = gevent.get_hub().threadpool.apply(so_far.judge, (self._abort_if,))
            if result is not None and self.end_reason is None:
                self.prepared.writer.manifest.aborted_by = Aborted(result.text, result.value or 0.0)
                text = f"--abort-if {result.text}: {result.value:g} after {so_far.ended} requests; the run ends"
                print(text, file=sys.stderr, flush=True)
                self.end("aborted")

    def _watch_until(self, watch: UntilWatch) -> None:
        """End the run as soon as the figure of --until is known."""
        while self.end_reason is None:
            gevent.sleep(JUDGE_EVERY_S)
            ended = gevent.get_hub().threadpool.apply(watch.look, (watch.so_far(),))
            if ended and self.end_reason is None:
                print(f"--until: {watch.at_end().sentence}; the run ends", file=sys.stderr, flush=True)
                self._phase_runner.end_early()

    def _end_below(self, watch: GoodputWatch) -> None:
        """End the run once the share of --end-below is out of reach."""
        if (shortfall := watch.shortfall) and self.end_reason is None:
            self.prepared.writer.manifest.ended_below = shortfall
            print(f"--end-below: {shortfall}; the run ends", file=sys.stderr, flush=True)
            self._phase_runner.end_early()

    def _watch(self) -> None:
        """End a run in which no user sends requests (any more), which would otherwise never end."""
        run_time_s = self.prepared.run_time_s
        first = self.prepared.segments[0].scheduled_s
        patience_s = FIRST_REQUEST_WITHIN_S if run_time_s is None else run_time_s + FIRST_REQUEST_AFTER_TIME_S
        patience_s += 0.0 if first is None else float(first[0])
        seen, active_s = 0, time.monotonic()
        while self.end_reason is None:
            gevent.sleep(WATCH_EVERY_S)
            now_s = time.monotonic()
            if self._host.sending() or self._seen != seen:
                seen, active_s, patience_s = self._seen, now_s, math.inf
            elif now_s - active_s > patience_s:
                self.abort("no request was sent; do the tasks of the locustfile call self.chat or self.complete?")
            elif run_time_s is not None and now_s - active_s > ARRIVALS_TAKEN_WITHIN_S:
                self._phase_runner.give_up_arrivals()
