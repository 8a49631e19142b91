"""Starts, checks and stops runs for the web page: one at a time, in any order of clicks.

    idle --start--> checking --all fits--> starting --test_start--> running --stop, or its end-->
    stopping --report--> idle

A start that is refused leaves everything as it was.
"""

from __future__ import annotations

import logging
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import gevent

from llama_load.ground.errors import LlamaLoadError, UsageError
from llama_load.loadgen.live.run_metrics import RunMetrics
from llama_load.loadgen.options.flag import Role
from llama_load.loadgen.options.flags import flags_with
from llama_load.loadgen.options.form import fields_of
from llama_load.loadgen.options.locust_flags import (
    impossible_values,
    refuse_conflicts,
    users_of,
)
from llama_load.loadgen.options.options import RunOptions
from llama_load.loadgen.preflight.prepare import Prepared, check, print_table
from llama_load.loadgen.preflight.servers import hosts_of, probe_targets
from llama_load.loadgen.run.outcome import IDLE, RUNNING, STOPPING, Outcome
from llama_load.loadgen.run.progress import Counts
from llama_load.outside.foreign_text import printable
from llama_load.page.experiments import Experiments
from llama_load.page.guard import WebGuard
from llama_load.page.start_form import StartForm
from llama_load.page.workload_choices import Choice
from llama_load.run_folder import PreflightRow

CHECKING = "checking"
STARTING = "starting"
# Locust begins a test as soon as it is told; a worker that has just left may delay that.
BEGUN_WITHIN_S = 10.0
LOOK_EVERY_S = 0.02
# The fields that say which server is asked, and how.
OF_SERVER = frozenset(flag.dest for flag in flags_with(Role.CONNECTION))

logger = logging.getLogger(__name__)


class ActiveRun(Protocol):
    """The present run, here or on the workers."""

    @property
    def counts(self) -> Counts:
        """How far it is."""

    @property
    def folder(self) -> Path:
        """Its folder."""

    def end_wait(self) -> None:
        """Stop waiting for requests in flight."""


class Runs(Protocol):
    """The runs of a Locust environment, one after the other (`Lifecycle`)."""

    environment: Any
    options: Any
    metrics: RunMetrics
    outcome: Outcome | None

    @property
    def active(self) -> ActiveRun | None:
        """The present run."""

    @property
    def state(self) -> str:
        """See `llama_load.loadgen.run.outcome`."""

    def read(self, options: Any, host: str | None) -> RunOptions:
        """Check and read these flags."""

    def plan(self, prepared: Prepared) -> None:
        """The next test that Locust starts is this run."""

    def drop_plan(self) -> None:
        """Locust has not started it."""


@dataclass(slots=True)
class Fault:
    """What is wrong, and the fields that it is about (none: the whole)."""

    text: str
    fields: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Answer:
    """What came of a check or a start: faults, or the rows of the preflight table; the folder if a
    run was started."""

    faults: list[Fault] = field(default_factory=list)
    rows: list[PreflightRow] = field(default_factory=list)
    run: str | None = None


class RunControl:
    """See above."""

    def __init__(self, runs: Runs, guard: WebGuard) -> None:
        self.runs = runs
        self.environment = runs.environment
        self.folders: dict[str, Path] = {}  # of the runs of this process, by name
        self._stage: str | None = None  # CHECKING or STARTING
        self._is_cancelled = False
        self.form = StartForm(runs.options, self.environment)
        self.experiments = Experiments(runs.options, guard, lambda: self.state != IDLE)
        self.environment.events.quitting.add_listener(
            lambda **_: self.experiments.stop()
        )
        self._stopper: gevent.Greenlet | None = None

    @property
    def state(self) -> str:
        """The state in the picture above."""
        return self._stage or self.runs.state

    # ------------------------------------------------------------------ a start

    def attempt(self, typed: Mapping[str, Any], *, begin: bool) -> Answer:
        """The faults of the form, or the preflight table; with `begin` the run is started if all
        fits."""
        busy = {
            CHECKING: "another check is under way: wait for it",
            STARTING: "a run is being started already",
            RUNNING: "a run is under way: stop it first",
            STOPPING: "the previous run is still writing its report: start again in a moment",
        }
        if self.state != IDLE:
            return Answer([Fault(busy[self.state])])
        if self.experiments.is_running:
            return Answer([Fault("a search or sweep is running: stop it first")])

        self._stage = CHECKING
        self._is_cancelled = False
        try:
            self.form.keep(typed)
            checked, candidate, choice = self._checked(typed)
            rows = checked.manifest.preflight
            if not begin:
                return Answer(rows=rows)
            if self._is_cancelled:
                return Answer([Fault("stopped before the first request")], rows)

            self._stage = STARTING
            print_table(rows)

            return self._begin(checked.open(), candidate, choice, rows)
        except LlamaLoadError as error:
            return Answer(self._faults(str(error)))
        # a data set, a server or a disk of which we thought nothing so bad
        except Exception as error:
            logger.exception("the run could not be prepared")
            return Answer(
                [Fault(f"the run could not be prepared: {printable(repr(error))}")]
            )
        finally:
            self._stage = None

    def _checked(self, typed: Mapping[str, Any]) -> tuple[Prepared, Namespace, Choice]:
        """UsageError: the faults of all fields, those about the server too."""
        candidate = Namespace(**vars(self.runs.options))
        choice = self.form.choice(typed)
        host, faults = self.form.fill(candidate, typed)
        faults += impossible_values(candidate)
        try:
            given = self.runs.read(candidate, host)
            refuse_conflicts(candidate, given)
        except UsageError as error:
            faults += str(error).splitlines()

        environment = SimpleNamespace(
            host=host,
            parsed_options=candidate,
            user_classes=list(choice.classes),
            shape_class=self.environment.shape_class,
            runner=self.environment.runner,
        )
        if faults:
            raise UsageError(
                "\n".join(
                    dict.fromkeys([*faults, *self._server_faults(environment, typed)])
                )
            )

        if self.form.is_master and not self.environment.runner.worker_count:
            raise UsageError(
                "no worker is connected: start one with locust --worker --master-host …"
            )

        run_time_s = candidate.run_time
        candidate.num_users = users_of(candidate, given)

        return check(environment, given, run_time_s, headless=False), candidate, choice

    def _server_faults(
        self, environment: SimpleNamespace, typed: Mapping[str, Any]
    ) -> list[str]:
        """What is wrong with the server, looked at although other fields have faults."""
        candidate = Namespace(**vars(self.runs.options))
        about_server = {
            name: value for name, value in typed.items() if name in OF_SERVER
        }
        host, faults = self.form.fill(candidate, about_server)
        if faults:
            return []

        try:
            probe_targets(hosts_of(environment), self.runs.read(candidate, host))
        except UsageError as error:
            return str(error).splitlines()

        return []

    def _faults(self, text: str) -> list[Fault]:
        known = self.form.known()
        return [
            Fault(printable(line, None), fields_of(line, known))
            for line in text.splitlines()
            if line.strip()
        ]

    def _begin(
        self,
        prepared: Prepared,
        candidate: Namespace,
        choice: Choice,
        rows: list[PreflightRow],
    ) -> Answer:
        self._adopt(candidate, choice)
        self.runs.plan(prepared)
        folder = prepared.writer.path
        self.folders[folder.name] = folder
        web_ui = self.environment.web_ui
        runner = self.environment.runner
        shape = self.environment.shape_class
        web_ui._cancel_run_time_timer()
        if shape is not None:
            runner.start_shape()
        else:
            users = max(prepared.load.users, candidate.num_users)
            web_ui._swarm_greenlet = gevent.spawn(
                runner.start, users, candidate.spawn_rate or users
            )

        with gevent.Timeout(BEGUN_WITHIN_S, False):
            while self.runs.active is None and self.runs.outcome is None:
                gevent.sleep(LOOK_EVERY_S)

        if (outcome := self.runs.outcome) is not None and outcome.folder is None:
            return Answer(self._faults(outcome.error or "the run was refused"), rows)
        if self.runs.active is None and outcome is None:
            self.runs.drop_plan()
            return Answer(
                [Fault("Locust did not start the run; its log has the reason")], rows
            )
        if self._is_cancelled:
            self.stop()

        return Answer(rows=rows, run=folder.name)

    def _adopt(self, candidate: Namespace, choice: Choice) -> None:
        """Keep what was typed for the next start; Locust's page and its workers see it, too."""
        options = self.runs.options
        self.form.accept(candidate)
        options.run_time = None  # ours; Locust would end the run itself
        options.spawn_rate = candidate.spawn_rate or candidate.num_users
        self.environment.host = candidate.host
        self.environment.user_classes = list(choice.classes)

    # ------------------------------------------------------------------ the end

    def stop(self) -> str:
        """Stop the run, or cut what a stopping run waits for. Returns the state at once."""
        state = self.state
        active = self.runs.active
        if state in (CHECKING, STARTING):
            self._is_cancelled = True
        elif state == RUNNING and (self._stopper is None or self._stopper.dead):
            self._stopper = gevent.spawn(self._stop)
        elif active is not None:
            active.end_wait()

        return self.state

    def _stop(self) -> None:
        web_ui = self.environment.web_ui
        if web_ui._swarm_greenlet is not None:
            web_ui._swarm_greenlet.kill(block=True)
            web_ui._swarm_greenlet = None
        self.environment.runner.stop()
