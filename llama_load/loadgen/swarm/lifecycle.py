"""Locust's events and what they do to a run: prepare, start, end, report.

    init        read the flags; headless: prepare the run, so that errors are reported before
                anything starts
    test_start  web UI: prepare the run; begin it
    …           the last measured request, -t, Ctrl-C or the stop button ends it
    test_stop   flush, write the run folder, print the results
    quitting    set the exit code

Locust's -t is implemented here, because Locust's timer would include the warm-up.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import gevent
from gevent import GreenletExit
from gevent.event import Event
from locust.runners import MasterRunner

from llama_load.ground.errors import LlamaLoadError, UsageError
from llama_load.ground.exit_codes import INCOMPLETE
from llama_load.ground.own_modules import module_command
from llama_load.ground.units import quantity
from llama_load.loadgen.live.run_metrics import RunMetrics
from llama_load.loadgen.options.locust_flags import (
    refuse_conflicts,
    users_of,
    with_first_load,
)
from llama_load.loadgen.options.options import RunOptions, read_options
from llama_load.loadgen.preflight.load_fits import sending_users
from llama_load.loadgen.preflight.prepare import Prepared, prepare
from llama_load.loadgen.run.in_thread import in_thread
from llama_load.loadgen.run.outcome import IDLE, RUNNING, STOPPING, Outcome
from llama_load.loadgen.run.reserve import Reserve
from llama_load.loadgen.run.telemetry_process import start_sampler_ahead
from llama_load.loadgen.schedule.segments import total_requests
from llama_load.loadgen.swarm import messages
from llama_load.loadgen.swarm.load_shapes import Stages
from llama_load.loadgen.swarm.local_run import LocalRun
from llama_load.loadgen.swarm.master import MasterRun
from llama_load.loadgen.swarm.presence import Presence
from llama_load.loadgen.swarm.rebalancing import Rebalancer
from llama_load.loadgen.swarm.signals import NOTHING_SENT, SIGNALS
from llama_load.loadgen.swarm.surroundings import EndedRun, Guard, Surroundings
from llama_load.loadgen.swarm.user_scaler import UserScaler
from llama_load.outside.foreign_text import printable_lines
from llama_load.outside.terminal import STARTED_AS, announce
from llama_load.run_folder.upload import check_place

# Locust writes its CSV files once a second, and not again at the end.
CSV_LAST_WRITE_S = 1.2
REPORTED_WITHIN_S = 300.0
# Locust's log message without -t, which is misleading here, because we have taken -t over.
NO_RUN_TIME = "No run time limit set, use CTRL+C to interrupt"

logger = logging.getLogger(__name__)


class Lifecycle:
    """The runs of one Locust environment, one after the other."""

    def __init__(self, environment: Any, surroundings: Surroundings) -> None:
        self.environment = environment
        self._surroundings = surroundings
        self.options = environment.parsed_options
        self.headless = bool(self.options.headless)
        self.run_time_s: float | None = None
        self.active: LocalRun | MasterRun | None = None
        self.prepared: Prepared | None = None
        self.exit_code: int | None = None
        self.metrics = RunMetrics()
        # of the last run, or of a start that was refused
        self.outcome: Outcome | None = None
        self._is_interrupted = False
        self._is_quitting = False
        self._guard: Guard | None = None
        self._autostarts = bool(self.options.autostart) and not self.headless
        self._user_scaler = UserScaler(environment)
        self._reserve = Reserve(0)
        self._reported = Event()
        self._reported.set()
        events = environment.events
        events.test_start.add_listener(self.on_test_start)
        events.test_stopping.add_listener(self.on_test_stopping)
        events.test_stop.add_listener(self.on_test_stop)
        events.quitting.add_listener(self.on_quitting)
        self._presence = (
            Presence(environment.runner)
            if isinstance(environment.runner, MasterRunner)
            else None
        )
        if self._presence is not None:
            Rebalancer(environment)
            for kind in messages.TO_MASTER:
                environment.runner.register_message(kind, self._on_message)
        try:
            if environment.web_ui is not None:
                self._guard = surroundings.open_pages(self)
            options = self.read(self.options, environment.host)
            options = self._take_over_options(options)
            if options.upload is not None:
                check_place(
                    options.upload
                )  # so that a mistake is reported before the run
            if options.metrics_address is not None:
                surroundings.serve_metrics(
                    options.metrics_address, self.metrics, options.web_token
                )
            if self.headless:
                if options.telemetry.interval_s:
                    start_sampler_ahead()
                self.prepared = self._prepare(options)
                self.options.num_users = self.prepared.load.users
                if (
                    not self.run_time_s
                    and (count := total_requests(self.prepared.load.segments))
                    is not None
                ):
                    _announce_end(f"The run ends after {quantity(count, 'request')}")
        except LlamaLoadError as error:
            _say(error)
            sys.exit(error.exit_code)
        if self._presence is not None:
            environment.runner.server.open()
        if self.options.spawn_rate is None:
            self.options.spawn_rate = (
                self.options.num_users
            )  # without -r all users start at once
        SIGNALS.listen(self._interrupted)
        if self.headless and self._presence is not None:
            gevent.spawn(self._wait_for_workers)

    def _take_over_options(self, given: RunOptions) -> RunOptions:
        refuse_conflicts(self.options, given)
        if self.headless and STARTED_AS in os.environ:
            has_shape = self.environment.shape_class is not None
            given = with_first_load(self.options, given, has_shape=has_shape)
        self.options.num_users = users_of(self.options, given)
        if self.headless:
            # The result block replaces Locust's tables on the terminal; --csv, --html and --json
            # still have them.
            logging.getLogger("locust.stats_logger").setLevel(logging.WARNING)
        if self.headless or self.options.autostart:
            self._take_over_run_time()
            if self.run_time_s:
                _announce_end(
                    f"Run time limit set to {self.run_time_s:g} seconds, counted from the end of the warm-up"
                )
        return given

    def read(self, options: Any, host: str | None) -> RunOptions:
        """The flags; without --stages those of the locustfile's load shape, if it is one of
        ours."""
        if self._guard is not None:  # before any path in them is looked at
            self._guard.check(options, host)
        shape = self.environment.shape_class
        if isinstance(shape, Stages):
            if not options.stages:
                options.stages = shape.text()
            if not options.stages:
                raise UsageError(
                    f"the load shape {type(shape).__name__} has no stages: write stages = '1,8,16' in it"
                )
        elif shape is not None and options.stages:
            raise UsageError(
                "--stages and the locustfile's load shape both set the load: leave out one of them"
            )
        return read_options(options)

    def _take_over_run_time(self) -> None:
        """Take -t from Locust's options, and stop the timer that its web UI has just started."""
        self.run_time_s = self.options.run_time
        self.options.run_time = None
        timer = getattr(self.environment.web_ui, "_run_time_greenlet", None)
        if timer is not None:
            timer.kill(block=False)

    def _prepare(self, options: RunOptions) -> Prepared:
        return self._adopted(
            prepare(self.environment, options, self.run_time_s, headless=self.headless)
        )

    def _adopted(self, prepared: Prepared) -> Prepared:
        shape = self.environment.shape_class
        if isinstance(shape, Stages):
            shape.users = prepared.load.users
        return prepared

    def plan(self, prepared: Prepared) -> None:
        """The next test that Locust starts is this run."""
        self.run_time_s = prepared.load.run_time_s
        self.prepared = self._adopted(prepared)
        self.outcome = None

    def drop_plan(self) -> None:
        """Locust has not started the test: there will be no run, and its folder is removed."""
        if self.prepared is not None:
            self.prepared.writer.discard()
            self.prepared = None

    @property
    def state(self) -> str:
        """`IDLE`, `RUNNING`, or `STOPPING`: no more requests are sent, and the report is not
        written yet."""
        if self.active is None and self._reported.is_set():
            return IDLE
        return (
            RUNNING
            if self.active is not None and self.active.controller.end_reason is None
            else STOPPING
        )

    # ------------------------------------------------------------------ Locust's events

    def on_test_start(self, **_: Any) -> None:
        """Begin a run; in the web UI prepare it first. An error stops the test."""
        self._reported.wait(
            REPORTED_WITHIN_S
        )  # the previous run's report is written in a thread
        if self.active is not None:
            logger.error(
                "the previous run is still stopping; wait until its report is written, then start again"
            )
            raise GreenletExit
        try:
            if self.prepared is None:
                if self._autostarts:  # its -t was taken over when the flags were read
                    self._autostarts = False
                else:  # Locust's web UI starts its timer right after this event: wait for that
                    gevent.sleep(0)
                    self._take_over_run_time()
                self.outcome = None
                self.prepared = self._prepare(
                    self.read(self.options, self.environment.host)
                )
            prepared = self.prepared
            self.prepared = None
            if prepared.load.model.stages:
                prepared.writer.manifest.users = prepared.load.users
            else:
                users = (
                    self.environment.runner.target_user_count or self.options.num_users
                )
                prepared.writer.manifest.users = sending_users(
                    self.environment.user_classes, users
                )
                # which starts users at rates of its choice, without -r
                is_shaped = self.environment.shape_class is not None
                spawn_rate = (
                    None
                    if prepared.load.model.is_open or is_shaped
                    else self.options.spawn_rate
                )
                prepared.writer.manifest.ramp_s = ramp_s(users, spawn_rate)
            run = (
                MasterRun
                if isinstance(self.environment.runner, MasterRunner)
                else LocalRun
            )
            self.active = run(self.environment, prepared, self._user_scaler)
            self._reserve = Reserve()
            self.metrics.follow(self.active.controller.live, prepared.writer)
            if prepared.load.model.stages:
                self._user_scaler.reach(prepared.load.users)
            self.active.open()
        except LlamaLoadError as error:
            self._refuse(error, error.exit_code)
        except Exception as error:
            self._refuse(f"the run could not be prepared: {error!r}", INCOMPLETE)

    def _refuse(self, what: object, exit_code: int) -> NoReturn:
        self.exit_code = exit_code
        self.outcome = Outcome(None, exit_code, str(what))
        logger.error("%s", what)  # the web UI shows the log
        runner = self.environment.runner
        gevent.spawn(runner.quit if self.headless else runner.stop)
        raise GreenletExit  # ends the greenlet that would spawn the users, without a traceback

    def _on_message(self, msg: Any, **_: Any) -> None:
        if msg.type == messages.HELLO and self._presence is not None:
            self._presence.introduce(msg.node_id, msg.data)
        if isinstance(self.active, MasterRun):
            self.active.on_message(msg.type, msg.node_id, msg.data)

    def on_test_stopping(self, **_: Any) -> None:
        """The users are about to be stopped: hand out no more leases."""
        self._user_scaler.leave()
        if self.active is not None:
            # A LoadTestShape that has ended stops the run from Locust's shape greenlet.
            is_shape = gevent.getcurrent() is self.environment.runner.shape_greenlet
            self.active.stopping(
                "interrupted"
                if self._is_interrupted
                else "time"
                if is_shape
                else "stopped"
            )

    def on_test_stop(self, **_: Any) -> None:
        """All users have stopped: write and print the results. Ctrl-C waits for this."""
        active = self.active
        if active is None or not self._reported.is_set():
            return
        self._reported.clear()
        self._reserve.release()
        self.exit_code = INCOMPLETE
        options = active.prepared.options
        folder = active.folder
        fault = None
        try:
            ended = self._report(active)
            folder = ended.run.path
            self.exit_code = ended.exit_code
            out = (
                sys.stderr if self.options.json else sys.stdout
            )  # stdout is reserved for --json
            ended.show(out, with_block=options.block)
            if options.junit is not None:
                self._write_beside("JUnit", options.junit, ended.write_junit)
            if self.options.csv_prefix:
                table = Path(f"{self.options.csv_prefix}_requests.csv")
                self._write_beside("CSV", table, ended.write_csv)
                gevent.sleep(CSV_LAST_WRITE_S)
            if not options.no_report_html:
                announce("writing report.html", len(ended.run.records))
                fault = in_thread(ended.write_html)
            if options.upload is not None:
                self._copy_to(options.upload, folder)
            self.environment.events.llm_report.fire(
                run_dir=ended.run.path, summary=ended.summary
            )
        except LlamaLoadError as error:
            fault = str(error)
            self.exit_code = error.exit_code
        except OSError as error:
            self.exit_code = INCOMPLETE
            fault = f"the results could not be written: {error.strerror or error}; make room and run 'llama-load report'"
        except Exception as error:
            self.exit_code = INCOMPLETE
            logger.exception("the report failed")
            fault = f"the report failed, but the records are kept: {error!r}"
        finally:
            if fault is not None:
                _say(fault)
            self.outcome = Outcome(folder, self.exit_code, fault)
            self.active = None
            self._reported.set()
            # also where Locust only stops the test: when its last worker has left
            if self.headless:
                gevent.spawn(self.environment.runner.quit)

    def _report(self, active: LocalRun | MasterRun) -> EndedRun:
        """Finish the run and have it reported. If its folder cannot be written, a message is
        printed. Raises UsageError after `RunController.abort`."""
        controller = active.controller
        has_page = not active.prepared.options.no_report_html
        try:
            run = active.finish()
            announce("computing the figures", len(run.records))
            ended = in_thread(
                lambda: self._surroundings.report(
                    run, controller.servers_started_s, has_page=has_page
                )
            )
        finally:
            controller.release()
        if ended.run.unwritten is not None:
            _say(ended.run.unwritten)
        if controller.fault is not None:
            raise UsageError(controller.fault)
        return ended

    def _write_beside(
        self, kind: str, file: Path, write: Callable[[Path], None]
    ) -> None:
        """Write a file outside the run folder."""
        try:
            write(file)
        except OSError as error:
            self.exit_code = INCOMPLETE
            _say(
                f"cannot write the {kind} file {file}: {error.strerror}; everything else is in the run folder"
            )

    def _copy_to(self, url: str, folder: Path) -> None:
        """Upload the run folder. (Not in a thread: gevent's subprocesses belong to the main
        one.)"""
        command = module_command("llama_load.run_folder.upload", str(folder))
        try:
            done = subprocess.run(
                command, input=url, capture_output=True, text=True, check=False
            )
        except OSError as error:  # no descriptor, process or memory is left
            self.exit_code = INCOMPLETE
            _say(f"the run could not be uploaded: {error.strerror}; it is in {folder}")
            return
        if done.returncode:
            self.exit_code = INCOMPLETE
            _say(
                f"the run could not be uploaded: {done.stderr.strip()}; it is in {folder}"
            )
        else:
            print(
                f"Uploaded to {printable_lines(done.stdout.strip())}", file=sys.stderr
            )

    def _interrupted(self, count: int) -> None:
        """Ctrl-C or SIGTERM, for the first or second time (see `llama_load.loadgen.swarm.signals`)."""
        active = self.active
        self._is_interrupted = self.headless or active is not None
        # cancel requests in flight
        if active is not None and (count > 1 or self.state == STOPPING):
            active.end_wait()
        if self.headless and self.prepared is not None:
            self._leave_before_start(NOTHING_SENT)
        # else Locust's main greenlet is ending and catches no exception any more
        elif not self._is_quitting:
            SIGNALS.throw(KeyboardInterrupt())

    def _leave_before_start(self, sentence: str) -> None:
        self.prepared = None
        # before quit(), which waits: a second signal must not raise beside SystemExit
        self._is_quitting = True
        _say(sentence)
        self.environment.runner.quit()
        SIGNALS.throw(SystemExit(INCOMPLETE))

    def _wait_for_workers(self) -> None:
        """In the place of Locust's own time limit, whose exit code 1 would be that of a
        threshold."""
        limit_s = self.options.expect_workers_max_wait
        self.options.expect_workers_max_wait = 0
        gevent.sleep(limit_s)
        there = len(self.environment.runner.clients.ready)
        expected = self.options.expect_workers
        if limit_s and self.prepared is not None and there < expected:
            count = f"{there} of {quantity(expected, 'worker')} connected within {limit_s} s (--expect-workers-max-wait)"
            self._leave_before_start(
                f"{count}; nothing was sent: look at the logs of the others"
            )

    def on_quitting(self, environment: Any, **_: Any) -> None:
        """Locust quits: end the run if there still is one, and set the exit code."""
        self._is_quitting = True
        if self.active is not None and self._reported.is_set():
            self.active.stopping("interrupted")
            environment.runner.stop()
        elif self.prepared is not None:
            _say(NOTHING_SENT)
            self.exit_code = INCOMPLETE
        self._reported.wait(REPORTED_WITHIN_S)
        # else the verdict decides: the last answer may have come before
        if self._is_interrupted and self.exit_code is None:
            self.exit_code = INCOMPLETE
        if self.exit_code is not None:
            environment.process_exit_code = self.exit_code


def _announce_end(sentence: str) -> None:
    """Log what ends the run, instead of Locust's message that it has no limit."""
    logging.getLogger("locust.main").addFilter(lambda record: record.msg != NO_RUN_TIME)
    logger.info("%s", sentence)


def ramp_s(users: int, spawn_rate: float | None) -> float | None:
    """Seconds that Locust takes to start all users: users / spawn_rate; None if all start in the
    first second. 12 at 1/s: 12.0."""
    return None if not spawn_rate or users <= spawn_rate else users / spawn_rate


def _say(what: object) -> None:
    print(f"llama-load: {printable_lines(str(what))}", file=sys.stderr, flush=True)
