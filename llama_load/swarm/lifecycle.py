"""The life of a run inside Locust: prepare, start, end, report.

    init        flags are read; headless: the run is prepared now, so that a fault is told before anything starts
    test_start  (web UI: prepare) open the run folder and the session, show progress
    …           the last measured request, -t, Ctrl-C, the stop button or a dying master end the run
    test_stop   flush, write the folder, print the block
    quitting    the exit code

Locust's own -t is taken over, because its clock starts before the warm-up and ours must not.
"""

from __future__ import annotations

import gc
import logging
import secrets
import sys
from typing import Any

import gevent
import locust
from gevent import GreenletExit
from locust.event import EventHook
from locust.runners import MasterRunner, WorkerRunner

from llama_load.errors import LlamaLoadError, UsageError
from llama_load.record import RequestRecord, to_batch
from llama_load.reports.results import work_out
from llama_load.reports.write import write_reports
from llama_load.runs import RunWriter, load_run
from llama_load.swarm import options as flags
from llama_load.swarm.prepare import Prepared, prepare
from llama_load.swarm.progress import Progress
from llama_load.swarm.recorder import Recorder
from llama_load.swarm.rows import show
from llama_load.swarm.selfcheck import SelfCheck
from llama_load.swarm.session import LocalSession
from llama_load.wire.hub import Hub

WORKER = "local"
# Locust writes its CSV files once a second and not once more at the end.
CSV_LAST_WRITE_S = 1.2

logger = logging.getLogger(__name__)


def install() -> None:
    """Hook ourselves into Locust, once per process."""
    events: Any = locust.events
    if hasattr(events, "llm_request"):
        return
    events.llm_request = EventHook()
    events.init_command_line_parser.add_listener(lambda parser, **_: flags.declare(parser))
    events.init.add_listener(lambda environment, **_: Lifecycle(environment))


class _Active:
    """Everything that exists only while a run is on."""

    def __init__(self, writer: RunWriter, session: LocalSession) -> None:
        self.session = session
        self.writer = writer
        self.recorder = Recorder(writer)
        self.check = SelfCheck(WORKER)
        self.progress = Progress(lambda: session.counts)
        self.timer: gevent.Greenlet | None = None
        self.end: str | None = None


class Lifecycle:
    """One Locust environment's runs, one after the other."""

    def __init__(self, environment: Any) -> None:
        self.environment = environment
        self.options = environment.parsed_options
        self.headless = bool(self.options.headless)
        self.run_time_s: float | None = None
        self.active: _Active | None = None
        self.prepared: Prepared | None = None
        self.exit_code: int | None = None
        events = environment.events
        events.test_start.add_listener(self.on_test_start)
        events.test_stopping.add_listener(self.on_test_stopping)
        events.test_stop.add_listener(self.on_test_stop)
        events.quitting.add_listener(self.on_quitting)
        try:
            self._take_over_options()
            if self.headless:
                self.prepared = self._prepare()
        except LlamaLoadError as error:
            _say(error)
            sys.exit(error.exit_code)

    def _take_over_options(self) -> None:
        if isinstance(self.environment.runner, MasterRunner | WorkerRunner):
            raise UsageError("runs on several workers (--master, --worker, --processes) are not supported yet; run one process")
        given = flags.read(self.options)
        self.options.num_users = self.options.num_users or given.max_concurrency or 1
        if self.options.spawn_rate is None:
            self.options.spawn_rate = self.options.num_users  # without -r all users start at once
        if self.headless:
            self.run_time_s, self.options.run_time = self.options.run_time, None
            # The block takes the place of Locust's tables; --csv, --html and --json have them as ever.
            logging.getLogger("locust.stats_logger").setLevel(logging.WARNING)

    def _prepare(self) -> Prepared:
        return prepare(self.environment, flags.read(self.options), self.run_time_s, headless=self.headless)

    # ------------------------------------------------------------------ Locust's events

    def on_test_start(self, **_: Any) -> None:
        """Begin a run; in the web UI also prepare it. A fault stops the test."""
        try:
            prepared = self.prepared or self._prepare()
            self.prepared = None
            self._start(prepared)
        except LlamaLoadError as error:
            self.exit_code = error.exit_code
            logger.error("%s", error)  # the log is what the web UI shows
            gevent.spawn(self.environment.runner.stop)
            raise GreenletExit from None  # ends the greenlet that would spawn the users, without a traceback

    def on_test_stopping(self, **_: Any) -> None:
        """Whoever waits for a ticket shall go."""
        if self.active is not None:
            self.active.end = self.active.end or "stopped"
            self.active.session.close()

    def on_test_stop(self, **_: Any) -> None:
        """All users are gone: write and print the results."""
        active, self.active = self.active, None
        if active is None:
            return
        try:
            self.exit_code = self._finish(active)
        except LlamaLoadError as error:
            _say(error)
            self.exit_code = error.exit_code
        except OSError as error:
            _say(
                f"the results could not be written to {active.writer.path}: {error.strerror}; make room and run "
                f"'llama-load report {active.writer.path}'"
            )
            self.exit_code = 3

    def on_quitting(self, environment: Any, **_: Any) -> None:
        """Locust ends, by itself or by Ctrl-C: end the run if there still is one, and set the exit code."""
        if self.active is not None:
            self.active.end = self.active.end or "interrupted"
            environment.runner.stop()
        if self.exit_code is not None:
            environment.process_exit_code = self.exit_code

    # ------------------------------------------------------------------ a run

    def _start(self, prepared: Prepared) -> None:
        prepared.writer.manifest.users = self.environment.runner.target_user_count or self.options.num_users
        options = prepared.options
        session = LocalSession(
            target=prepared.target,
            body_options=prepared.body_options,
            timeouts=options.timeouts,
            save_texts=options.save_texts,
            worker=WORKER,
            plans=prepared.plans,
            warmup=prepared.warmup,
            measured=prepared.measured,
            nonce=secrets.token_hex(8) if options.bust_prefix_cache else None,
            began=self._began,
            finished=lambda: self._end("complete"),
            ended=self._record,
        )
        self.active = _Active(prepared.writer, session)
        self.environment.llama_load = session
        _settle()
        session.open()

    def _began(self) -> None:
        """The warm-up is over."""
        active = self.active
        assert active is not None
        active.check.start()
        if self.run_time_s is not None:
            active.timer = gevent.spawn_later(self.run_time_s, self._end, "time")

    def _record(self, record: RequestRecord) -> None:
        active = self.active
        if active is None:  # Locust has given up on a user that would not stop; too late to count it
            return
        active.recorder.add(record)
        self.environment.events.llm_request.fire(record=record)
        if not record.warmup:
            show(self.environment, record, record.output_chars)

    def _end(self, reason: str) -> None:
        active = self.active
        if active is not None and active.end is None:
            active.end = reason
            active.check.stop()  # stopping keeps Locust busy for some 70 ms, which delay nothing that is measured
            runner = self.environment.runner
            # Not from the user's own greenlet, which stopping would kill half-way.
            gevent.spawn(runner.quit if self.headless else runner.stop)

    def _finish(self, active: _Active) -> int:
        active.check.stop()
        if active.timer is not None:
            active.timer.kill()
        for exchange in tuple(Hub.of_this_process().active):
            exchange.cancel()
        active.progress.close()
        flushed = active.recorder.close()
        manifest = active.writer.manifest
        manifest.end = active.end or "stopped"
        manifest.workers = [active.check.health()]
        if not flushed:
            raise OSError(0, "the disk refuses the records")
        active.writer.finish()
        results = work_out(load_run(active.writer.path))
        if self.options.csv_prefix:
            gevent.sleep(CSV_LAST_WRITE_S)
        print(write_reports(results), end="", flush=True)
        print(f"Run folder: {active.writer.path}", flush=True)
        return results.exit_code


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


def _say(what: object) -> None:
    print(f"llama-load: {what}", file=sys.stderr, flush=True)
