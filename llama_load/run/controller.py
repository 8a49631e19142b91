"""The controlling side of a run: who sends what, what has come in, when it is over, and the report. In one process or
on the master."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from functools import reduce

import gevent

from llama_load.analysis.results import Results, analyze
from llama_load.dispatch.dispatcher import Dispatcher
from llama_load.earlier_runs import sent_before
from llama_load.errors import UsageError
from llama_load.metrics.abort import RunningFigures
from llama_load.metrics.evidence import NO_ANSWER, WorkerHealth
from llama_load.metrics.server_counters import ServerCounters
from llama_load.preflight.prepare import Prepared
from llama_load.record import OK
from llama_load.reports.write import try_to_write_reports
from llama_load.run.host import RunHost
from llama_load.run.in_thread import in_thread
from llama_load.run.phase_runner import PhaseRunner
from llama_load.run.progress import Counts, Progress
from llama_load.run.server_identity import changes_since
from llama_load.runs import Aborted, Run, StageRecord, write_manifest
from llama_load.targets.balance import Balancer
from llama_load.targets.counters import read_counters

# A run in which nobody has sent anything for so long never will: its tasks do not call self.chat. With -t: so long after that time.
FIRST_REQUEST_WITHIN_S = 60.0
FIRST_REQUEST_AFTER_TIME_S = 5.0
# Arrivals that nobody begins to send for so long, although the instants of all have passed and a time was given, are given up.
ARRIVALS_TAKEN_WITHIN_S = 5.0
WATCH_EVERY_S = 0.5
JUDGE_EVERY_S = 2.0
# How long servers may take to report their counters between two measurements.
COUNTERS_WITHIN_S = 6.0
# How long a server may take at the end to say what it is.
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
        self._progress = Progress(self._counts)
        self._abort_if = prepared.options.goals.abort_if
        self._figures = RunningFigures()

    def open(self) -> None:
        """Let the workers begin."""
        self._greenlets.append(gevent.spawn(self._watch))
        if self._abort_if:
            self._greenlets.append(gevent.spawn(self._watch_thresholds))
        self.phase_over()

    def phase_over(self) -> None:
        """See `PhaseListener.phase_over`. (A user's greenlet, which calls this, may be killed, or have a timeout.)"""
        self._greenlets.append(gevent.spawn(self._phase_runner.next_phase))

    def heard(self, status: str, output_tokens: int | None, latencies_ms: Sequence[float | None], *, warmup: bool) -> None:
        """A record has come in: what the progress display counts, and what --abort-if looks at (see `RunningFigures`)."""
        if self._abort_if and not warmup:
            self._figures.add(status, latencies_ms)
        self._seen += 1
        self._failed += status != OK
        self._output_tokens += output_tokens or 0

    def end(self, reason: str) -> None:
        """The run is over, for this reason, unless it already was for another."""
        if self.end_reason is None:
            self.end_reason = reason
            gevent.spawn(self._host.stop)  # not from a user's own greenlet, which stopping would kill half-way

    def abort(self, sentence: str) -> None:
        """The run makes no sense: end it, and say why."""
        if self._fault is None:
            self._fault = sentence
            self.end("stopped")

    def stopping(self, reason: str) -> None:
        """The users are being stopped, for this reason unless the run was over for another: nobody gets any more to send."""
        self.end_reason = self.end_reason or reason
        self._phase_runner.stopping()
        self.dispatcher.close()

    def finish(self, health: Sequence[WorkerHealth]) -> tuple[Results, str]:
        """Everything has come in: write the folder. The results and the text of the block.

        Where the folder cannot be written, that is said, and `Run.unwritten` of the results says so. Raises UsageError if the
        locustfile made the run impossible.
        """
        for greenlet in self._greenlets:
            greenlet.kill(block=False)
        self._phase_runner.close()
        self._progress.close()
        writer = self.prepared.writer
        writer.manifest.end = self.end_reason or "stopped"
        writer.manifest.workers = list(health)
        writer.manifest.lost = self.dispatcher.lost
        writer.manifest.server_changes += self._server_changes()
        try:
            run = writer.finish()
            self._look_at_earlier_runs(run)
            results, text = try_to_write_reports(analyze(run))
        finally:
            writer.release()
        if results.run.unwritten is not None:
            print(f"llama-load: {results.run.unwritten}", file=sys.stderr)
        if self._fault is not None:
            raise UsageError(self._fault)
        return results, text

    def before_measuring(self) -> None:
        """A warm-up is over."""
        self._counters_before = self._counters()
        self._since, self._failed, self._output_tokens = time.monotonic(), 0, 0

    def after_measuring(self, stages: Sequence[StageRecord]) -> None:
        """A measurement is over, and all its requests with it: what the servers counted in it. A warm-up may follow."""
        before, after = self._counters_before, self._counters() if self._counters_before is not None else None
        found = None if before is None or after is None else after.since(before)
        if before is not None and after is not None and found is None:
            self.prepared.writer.manifest.server_changes.append("restarted while requests were measured: its counters began anew")
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
        """Note in the manifest which of the prompts had been sent before. A folder that cannot be read changes no run."""
        started = {target.address.url: target.facts.started_s for target in self.prepared.targets}
        known = {url: at_s for url, at_s in started.items() if at_s is not None}
        try:
            run.manifest.prompts_sent_before = in_thread(lambda: sent_before(self.prepared.writer.path, run.records, known))
            in_thread(lambda: write_manifest(run.path, run.manifest))
        except Exception as error:
            print(f"earlier runs beside {run.path} were not looked at: {error}", file=sys.stderr)

    def _server_changes(self) -> list[str]:
        """What the servers are now that they were not before the run."""
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
        """What the targets have counted so far; None unless all of them count."""
        targets = self.prepared.targets
        if not all(target.has_counters for target in targets):
            return None
        jobs = [gevent.spawn(read_counters, target, self.prepared.options.tls) for target in targets]
        gevent.joinall(jobs, timeout=COUNTERS_WITHIN_S)
        gevent.killall(jobs, block=False)
        known = [job.value for job in jobs if isinstance(job.value, ServerCounters)]
        return reduce(ServerCounters.plus, known) if len(known) == len(jobs) else None

    def _counts(self) -> Counts:
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

    def _watch_thresholds(self) -> None:
        """Ends the run as soon as an --abort-if has come true."""
        while self.end_reason is None:
            gevent.sleep(JUDGE_EVERY_S)
            so_far = self._figures.so_far()
            result = gevent.get_hub().threadpool.apply(so_far.judge, (self._abort_if,))
            if result is not None and self.end_reason is None:
                self.prepared.writer.manifest.aborted_by = Aborted(result.text, result.value or 0.0)
                text = f"--abort-if {result.text}: {result.value:g} after {so_far.ended} requests, so the run ends"
                print(text, file=sys.stderr, flush=True)
                self.end("aborted")

    def _watch(self) -> None:
        """Ends a run in which nobody sends anything (any more), so that it does not go on for ever."""
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
