"""A run that is on: its session, recorder, self-check, progress and clock, from the first user to the report."""

from __future__ import annotations

import gc
import secrets
from collections.abc import Callable
from functools import reduce
from typing import Any

import gevent

from llama_load.errors import RunError, UsageError
from llama_load.metrics.speculative import Speculation
from llama_load.record import RequestRecord, to_batch
from llama_load.reports.results import Results, work_out
from llama_load.reports.write import write_reports
from llama_load.runs import load_run
from llama_load.swarm.prepare import Prepared
from llama_load.swarm.progress import Progress
from llama_load.swarm.recorder import Recorder
from llama_load.swarm.rows import show
from llama_load.swarm.selfcheck import SelfCheck
from llama_load.swarm.session import LocalSession
from llama_load.targets.balance import Balancer
from llama_load.targets.counters import speculation
from llama_load.wire.hub import Hub

WORKER = "local"
# A run in which nobody has sent anything for so long never will: its tasks do not call self.chat.
FIRST_REQUEST_WITHIN_S = 60.0
# How long users that were stopped may take to write down what they were doing.
LAST_RECORDS_WITHIN_S = 2.0


class ActiveRun:
    """One run. `stop` is called once, from a greenlet of its own, when the run should end by itself."""

    def __init__(self, environment: Any, prepared: Prepared, stop: Callable[[], None]) -> None:
        self._environment = environment
        self._prepared = prepared
        self._stop = stop
        self._recorder = Recorder(prepared.writer)
        self._check = SelfCheck(WORKER)
        self._timers: list[gevent.Greenlet] = []
        self._fault: str | None = None
        self._speculation_before: Speculation | None = None
        self.end_reason: str | None = None
        options = prepared.options
        self.session = LocalSession(
            balancer=Balancer(prepared.targets, options.balance),
            body_options=prepared.body_options,
            timeouts=options.timeouts,
            save_texts=options.save_texts,
            worker=WORKER,
            plans=prepared.plans,
            warmup=prepared.warmup,
            measured=prepared.measured,
            nonce=secrets.token_hex(8) if options.bust_prefix_cache else None,
            warmed_up=lambda: self._spawn(self._begin_measuring),
            finished=lambda: self.end("complete"),
            ended=self._record,
            aborted=self._abort,
        )
        self._progress = Progress(lambda: self.session.counts)

    def open(self) -> None:
        """Let the users begin."""
        _settle()
        Hub.of_this_process().trust(self._prepared.options.tls)
        patience_s = max(FIRST_REQUEST_WITHIN_S, self._prepared.run_time_s or 0)
        self._timers.append(gevent.spawn_later(patience_s, self._anybody_there))
        self.session.open()

    def end(self, reason: str) -> None:
        """The run is over, for this reason, unless it already was for another."""
        if self.end_reason is None:
            self.end_reason = reason
            self._check.stop()  # stopping keeps Locust busy for some 70 ms, which delay nothing that is measured
            gevent.spawn(self._stop)  # not from a user's own greenlet, which stopping would kill half-way

    def finish(self) -> tuple[Results, str]:
        """All users are gone: write the folder. The results and the text of the block.

        Raises UsageError if the locustfile made the run impossible, RunError or OSError if results cannot be written.
        """
        self.session.close()
        self._check.stop()
        for timer in self._timers:
            timer.kill(block=False)
        for exchange in tuple(Hub.of_this_process().active):
            exchange.cancel()
        Hub.of_this_process().close_parked()
        with gevent.Timeout(LAST_RECORDS_WITHIN_S, False):
            while self.session.counts.in_flight > 0:
                gevent.sleep(0.01)
        self._progress.close()
        written = self._recorder.close()
        writer = self._prepared.writer
        writer.manifest.end = self.end_reason or "stopped"
        writer.manifest.workers = [self._check.health()]
        if self._speculation_before is not None and (after := self._speculation()) is not None:
            writer.manifest.speculation = after.since(self._speculation_before)
        if not written:
            raise RunError(
                f"the records could not be written to {writer.path}; make room and run 'llama-load report {writer.path}'"
            )
        writer.finish()
        results = work_out(load_run(writer.path))
        text = write_reports(results)
        if self._fault is not None:
            raise UsageError(self._fault)
        return results, text

    def _spawn(self, what: Callable[[], None]) -> None:
        """Not in a user's greenlet, which may be killed or have a timeout of its own."""
        self._timers.append(gevent.spawn(what))

    def _begin_measuring(self) -> None:
        """The warm-up is over."""
        try:
            self._speculation_before = self._speculation()
        finally:
            self.session.measure()
        self._check.start()
        if self._prepared.run_time_s is not None:
            self._timers.append(gevent.spawn_later(self._prepared.run_time_s, self.end, "time"))

    def _speculation(self) -> Speculation | None:
        """What the targets have counted of speculative decoding so far; None unless all of them count."""
        prepared = self._prepared
        if not all(target.counts_drafts for target in prepared.targets):
            return None
        counts = [speculation(target, prepared.options.tls) for target in prepared.targets]
        known = [count for count in counts if count is not None]
        return reduce(Speculation.plus, known) if len(known) == len(counts) else None

    def _record(self, record: RequestRecord) -> None:
        self._recorder.add(record)
        self._environment.events.llm_request.fire(record=record)
        if not record.warmup:
            show(self._environment, record, record.output_chars)

    def _abort(self, sentence: str) -> None:
        if self._fault is None:
            self._fault = sentence
            self.end("stopped")

    def _anybody_there(self) -> None:
        counts = self.session.counts
        if counts.phase != "measuring" and counts.done == 0 and counts.in_flight == 0:
            self._abort("no request was sent; do the tasks of the locustfile call self.chat or self.complete?")


def _settle() -> None:
    """Get out of the way whatever would stop the event loop later.

    The first record that is encoded makes pyarrow import pandas: 0.4 s in which every stream's tokens pile up. A full
    garbage collection over all that Locust has loaded takes some tens of ms.
    """
    to_batch([RequestRecord(
        request_id="", worker="", user="", workload="", name="", host="", endpoint="", status="ok",
        started_mono_ns=0, ended_mono_ns=0, started_wall_ns=0, itl_ms=[1.0],
    )])  # fmt: skip
    gc.collect()
    gc.freeze()
