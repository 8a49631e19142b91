"""Starts, checks and stops runs for the web page: one at a time, in any order of clicks.

    idle --start--> checking --all fits--> starting --test_start--> running --stop, or its end--> stopping --report--> idle

A start that is refused leaves everything as it was. Values that were typed are kept for the next start, keys never.
"""

from __future__ import annotations

import logging
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import gevent
from locust import argument_parser
from locust.runners import MasterRunner
from locust.util.timespan import parse_timespan

from llama_load.errors import LlamaLoadError, UsageError
from llama_load.foreign_text import printable
from llama_load.options.flag_reader import FlagReader
from llama_load.options.flags import FLAGS, without_secret_values
from llama_load.options.form import CHOICE, LINES, SECRET, SECRET_LINES, SWITCH, TEXT, Field, fields, fields_of, workload_names
from llama_load.options.locust_flags import refuse_conflicts, users_of
from llama_load.options.options import RunOptions, secret_values
from llama_load.preflight.prepare import Checked, Prepared, check, print_table
from llama_load.run.progress import Counts
from llama_load.runs import PreflightRow
from llama_load.swarm.outcome import IDLE, RUNNING, STOPPING, Outcome
from llama_load.swarm.web.metrics import RunMetrics
from llama_load.swarm.web_guard import WebGuard

CHECKING, STARTING = "checking", "starting"
# Locust begins a test as soon as it is told; a worker that has just left may delay that.
BEGUN_WITHIN_S = 10.0
LOOK_EVERY_S = 0.02
# A text of the form: longer ones are no flags.
MOST_CHARS = 100_000
OF_LOCUSTFILE = "Options of the locustfile"
DEFAULTS = {flag.dest: flag.default for flag in FLAGS}

logger = logging.getLogger(__name__)


class ActiveRun(Protocol):
    """The present run, here or on the workers."""

    @property
    def counts(self) -> Counts:
        """How far it is."""

    @property
    def folder(self) -> Path:
        """Its folder."""

    def cut(self) -> None:
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
        """See `llama_load.swarm.outcome`."""

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
    """What came of a check or a start: faults, or the rows of the preflight table; the folder if a run was started."""

    faults: list[Fault] = field(default_factory=list)
    rows: list[PreflightRow] = field(default_factory=list)
    run: str | None = None


class RunControl:
    """See above."""

    def __init__(self, runs: Runs, guard: WebGuard) -> None:
        self.runs = runs
        self.environment = runs.environment
        self.folders: dict[str, Path] = {}  # of the runs of this process, by name
        self._guard = guard
        self._stage: str | None = None  # CHECKING or STARTING
        self._is_cancelled = False
        self._given_users = runs.options.num_users
        self._given_spawn_rate = runs.options.spawn_rate
        self._typed: dict[str, Any] = {}  # what was sent in the last attempt, right or wrong, without keys
        self._accepted: dict[str, Any] = {}  # the same of the starts
        self._stopper: gevent.Greenlet | None = None
        self._own_fields = _own_fields(runs.options)

    # ------------------------------------------------------------------ the form

    @property
    def is_master(self) -> bool:
        """Whether requests are sent by workers."""
        return isinstance(self.environment.runner, MasterRunner)

    @property
    def state(self) -> str:
        """The state in the picture above."""
        return self._stage or self.runs.state

    def groups(self) -> dict[str, list[Field]]:
        """The form's fields, for the workloads of the locustfile."""
        options = self.runs.options
        given = [flag for flag, value in FlagReader(options).raw.items() if value not in (None, "", False, DEFAULTS[flag])]
        users = self.environment.user_classes
        names = workload_names([workload for user in users if (workload := getattr(user, "workload", None)) is not None])
        own = [user for user in users if hasattr(user, "workload_name") and getattr(user, "workload", None) is None]
        groups = fields([] if own else names, given, keys=not self.is_master)
        return groups | ({OF_LOCUSTFILE: self._own_fields} if self._own_fields else {})

    def values(self) -> dict[str, Any]:
        """The value of each field as the page shows it: what was typed last, as text, lines or a switch; keys are left out."""
        return self._present() | self._typed

    def _present(self) -> dict[str, Any]:
        """The value that each field had in the last start, or on the command line; known keys in them are ***."""
        options = self.runs.options
        found: dict[str, Any] = {}
        for each in (each for group in self.groups().values() for each in group):
            value = getattr(options, each.name, None)
            if each.name in self._accepted:
                found[each.name] = self._accepted[each.name]
                continue
            if each.kind in (SECRET, SECRET_LINES):
                value = None
            elif each.name in ("num_users", "spawn_rate"):  # without the defaults that Locust needs
                value = {"num_users": self._given_users, "spawn_rate": self._given_spawn_rate}[each.name]
            elif each.name == "host":
                value = self.environment.host
            elif each.name == "extra_body" and value:
                value = without_secret_values(value)
            if each.kind == SWITCH:
                found[each.name] = str(value).lower() in ("true", "1", "on", "yes")
            elif each.kind == LINES:
                found[each.name] = FlagReader(options).lines(each.name)
            else:
                found[each.name] = "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
        return found

    # ------------------------------------------------------------------ a start

    def check(self, typed: Mapping[str, Any]) -> Answer:
        """What a start would do: the faults of the form, or the preflight table."""
        return self._attempt(typed, begin=False)

    def start(self, typed: Mapping[str, Any]) -> Answer:
        """Check, and start the run if all fits."""
        return self._attempt(typed, begin=True)

    def _attempt(self, typed: Mapping[str, Any], *, begin: bool) -> Answer:
        busy = {
            CHECKING: "another check is under way: wait for it",
            STARTING: "a run is being started already",
            RUNNING: "a run is under way: stop it first",
            STOPPING: "the previous run is still writing its report: start again in a moment",
        }
        if self.state != IDLE:
            return Answer([Fault(busy[self.state])])
        self._stage, self._is_cancelled = CHECKING, False
        try:
            self._typed = self._kept(typed)
            checked, candidate, host = self._checked(typed)
            rows = checked.manifest.preflight
            if not begin:
                return Answer(rows=rows)
            if self._is_cancelled:
                return Answer([Fault("stopped before the first request")], rows)
            self._stage = STARTING
            print_table(rows)
            return self._begin(checked.open(), candidate, host, rows)
        except LlamaLoadError as error:
            return Answer(self._faults(str(error)))
        except Exception as error:  # a data set, a server or a disk of which we thought nothing so bad
            logger.exception("the run could not be prepared")
            return Answer([Fault(f"the run could not be prepared: {printable(repr(error))}")])
        finally:
            self._stage = None

    def _kept(self, typed: Mapping[str, Any]) -> dict[str, Any]:
        """What was sent, without keys: for the page's next visitor."""
        found: dict[str, Any] = {}
        for each in (each for group in self.groups().values() for each in group):
            value = typed.get(each.name)
            if value is None or each.kind in (SECRET, SECRET_LINES) or len(str(value)) > MOST_CHARS:
                continue
            if each.name == "extra_body" and value and without_secret_values(str(value)) != value:
                continue
            kept = value is True or value == "true" if each.kind == SWITCH else str(value)
            found[each.name] = [line for line in _lines(value) if line.strip()] if each.kind == LINES else kept
        return found

    def _checked(self, typed: Mapping[str, Any]) -> tuple[Checked, Namespace, str | None]:
        options = self.runs.options
        candidate = Namespace(**vars(options))
        host, run_time_s = self._fill(candidate, typed)
        candidate.host, candidate.run_time = host, run_time_s
        given = self.runs.read(candidate, host)
        refuse_conflicts(candidate, given)
        candidate.num_users = users_of(candidate, given)
        if self.is_master and not self.environment.runner.worker_count:
            raise UsageError("no worker is connected: start one with locust --worker --master-host …")
        environment = SimpleNamespace(
            host=host,
            parsed_options=candidate,
            user_classes=self.environment.user_classes,
            shape_class=self.environment.shape_class,
            runner=self.environment.runner,
        )
        return check(environment, given, run_time_s, headless=False), candidate, host

    def _fill(self, candidate: Namespace, typed: Mapping[str, Any]) -> tuple[str | None, float | None]:
        """Put what was typed into the options. Returns the host and the run time. UsageError: all values that are none."""
        faults: list[str] = []
        known = {each.name: each for group in self.groups().values() for each in group}
        for name in sorted(typed.keys() - known.keys()):
            faults.append(f"{printable(name)} is no field of this form")
        present = self._present()
        given: dict[str, Any] = {}
        for name, each in known.items():
            value = typed.get(name, present[name])  # what is not sent stays as it is
            if len(str(value)) > MOST_CHARS:
                faults.append(f"{each.label} is longer than {MOST_CHARS:,} characters")
            elif each.kind in (LINES, SECRET_LINES):
                given[name] = [line.strip() for line in _lines(value) if line.strip()] or None
            elif each.kind == SWITCH:
                given[name] = value is True or value == "true"
            else:
                given[name] = str(value).strip() or DEFAULTS.get(name)
        for name in given.keys() - {"host", "num_users", "spawn_rate", "run_time"}:
            is_secret = known[name].kind in (SECRET, SECRET_LINES)
            if not is_secret or given[name]:  # an empty key field keeps the key of the command line
                setattr(candidate, name, given[name])
        for each in self._own_fields:
            present_value = getattr(self.runs.options, each.name)
            if given.get(each.name) is not None and not isinstance(present_value, bool | None):
                kind = type(present_value)
                value = _number(given[each.name], kind, f"{each.label} must be of type {kind.__name__}", faults)
                setattr(candidate, each.name, value)
        shown = getattr(self.runs.options, "extra_body", None)
        if shown and given.get("extra_body") == without_secret_values(shown):
            candidate.extra_body = shown  # *** on the page stands for what it was
        candidate.num_users = _number(given.get("num_users"), int, "-u must be a whole number of at least 1", faults)
        candidate.spawn_rate = _number(given.get("spawn_rate"), float, "-r must be a number of users a second", faults)
        run_time_s: float | None = None
        try:
            run_time_s = parse_timespan(given["run_time"]) if given.get("run_time") else None
        except (ValueError, OverflowError):
            faults.append(f"-t must be a time such as 90s, 10m or 1h30m, got {given['run_time']!r}")
        if faults:
            try:  # name the other flags' faults, too
                self.runs.read(candidate, given.get("host"))
            except UsageError as error:
                faults += str(error).splitlines()
            raise UsageError("\n".join(faults))
        return given.get("host"), run_time_s

    def _faults(self, text: str) -> list[Fault]:
        known = {each.name: each for group in self.groups().values() for each in group}
        return [Fault(printable(line, None), fields_of(line, known)) for line in text.splitlines() if line.strip()]

    def _begin(self, prepared: Prepared, candidate: Namespace, host: str | None, rows: list[PreflightRow]) -> Answer:
        self._adopt(candidate, host)
        self.runs.plan(prepared)
        name = self._remember(prepared.writer.path)
        web_ui, runner = self.environment.web_ui, self.environment.runner
        shape = self.environment.shape_class
        web_ui._cancel_run_time_timer()
        if shape is not None:
            runner.start_shape()
        else:
            users = max(prepared.users, candidate.num_users)
            web_ui._swarm_greenlet = gevent.spawn(runner.start, users, candidate.spawn_rate or users)
        with gevent.Timeout(BEGUN_WITHIN_S, False):
            while self.runs.active is None and self.runs.outcome is None:
                gevent.sleep(LOOK_EVERY_S)
        if (outcome := self.runs.outcome) is not None and outcome.folder is None:
            return Answer(self._faults(outcome.error or "the run was refused"), rows)
        if self.runs.active is None and outcome is None:
            self.runs.drop_plan()
            return Answer([Fault("Locust did not start the run; its log has the reason")], rows)
        if self._is_cancelled:
            self.stop()
        return Answer(rows=rows, run=name)

    def _adopt(self, candidate: Namespace, host: str | None) -> None:
        """Keep what was typed for the next start, without keys; Locust's page and its workers see it, too."""
        options = self.runs.options
        secrets = secret_values(FlagReader(candidate))
        for group in self.groups().values():
            for each in group:
                value = getattr(candidate, each.name, None)
                if each.kind not in (SECRET, SECRET_LINES) and not any(secret in str(value) for secret in secrets):
                    setattr(options, each.name, value)
        self._accepted |= self._typed
        options.run_time = None  # ours; Locust would end the run itself
        options.spawn_rate = candidate.spawn_rate or candidate.num_users
        self.environment.host = host

    def _remember(self, folder: Path) -> str:
        self.folders[folder.name] = folder
        return folder.name

    # ------------------------------------------------------------------ the end

    def stop(self) -> str:
        """Stop the run, or cut what a stopping run waits for. Returns the state at once."""
        state, active = self.state, self.runs.active
        if state in (CHECKING, STARTING):
            self._is_cancelled = True
        elif state == RUNNING and (self._stopper is None or self._stopper.dead):
            self._stopper = gevent.spawn(self._stop)
        elif active is not None:
            active.cut()
        return self.state

    def _stop(self) -> None:
        web_ui = self.environment.web_ui
        if web_ui._swarm_greenlet is not None:
            web_ui._swarm_greenlet.kill(block=True)
            web_ui._swarm_greenlet = None
        self.environment.runner.stop()


def _own_fields(options: Any) -> list[Field]:
    """The arguments that the locustfile has added to Locust's parser: texts, numbers, switches and choices, but no secrets."""
    parser = argument_parser.get_parser()
    ours = {flag.dest for flag in FLAGS} | argument_parser.default_args_dict().keys()
    found = []
    for name, action in parser.args_included_in_web_ui.items():
        value = getattr(options, name, None)
        if (
            name in ours
            or not hasattr(options, name)
            or name in parser.secret_args_included_in_web_ui
            or not isinstance(value, str | int | float | None)
        ):
            continue
        kind = SWITCH if isinstance(value, bool) else CHOICE if action.choices else TEXT
        label = next(iter(action.option_strings), name)
        found.append(Field(name, label, OF_LOCUSTFILE, action.help or "", kind, tuple(map(str, action.choices or ()))))
    return found


def _lines(value: Any) -> Sequence[str]:
    if isinstance(value, list):
        return [str(each) for each in value]
    return str(value or "").splitlines()


def _number(text: str | None, kind: Callable[[str], Any], sentence: str, faults: list[str]) -> Any:
    if not text:
        return None
    try:
        return kind(text)
    except ValueError:
        faults.append(f"{sentence}, got {text!r}")
        return None
