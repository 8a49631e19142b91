"""The values of the page's form.

What it shows, what was typed, and the options of a run made of them.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from locust import argument_parser
from locust.runners import MasterRunner

from llama_load.ground.errors import UsageError
from llama_load.loadgen.options.flag import Kind, Role
from llama_load.loadgen.options.flag_reader import FlagReader
from llama_load.loadgen.options.flags import FLAGS, flags_with
from llama_load.loadgen.options.form import (
    CHOICE,
    LINES,
    SECRET,
    SECRET_LINES,
    SWITCH,
    TEXT,
    Field,
    fields,
)
from llama_load.loadgen.options.locust_flags import read_locust_flags
from llama_load.loadgen.options.secret_flags import redact_json, secret_values
from llama_load.outside.foreign_text import MASK, printable
from llama_load.page.workload_choices import GIVEN, Choice, workload_choices

# A text of the form: longer ones are no flags.
MOST_CHARS = 100_000
OF_LOCUSTFILE = "Options of the locustfile"
WORKLOAD = "workload"
DEFAULTS = {flag.dest: flag.default for flag in FLAGS}
# What the page suggests where the command line gave neither an amount nor a load, so that a run
# ends. p99 needs 100 requests.
SUGGESTED = {"num_users": "1", "num_prompts": "100"}
# Flags that set the load in place of --users.
OTHER_LOADS = ("stages", "request_rate", "conversations", "conversation_rate")
_JSON = frozenset(flag.dest for flag in FLAGS if flag.kind is Kind.JSON)


class StartForm:
    """See above. Values that were typed are kept for the next start, keys never."""

    def __init__(self, options: Any, environment: Any) -> None:
        self._options = options
        self._environment = environment
        self._at_start = Namespace(**vars(options))
        # what was sent in the last attempt, right or wrong, without keys
        self._typed: dict[str, Any] = {}
        self._accepted: dict[str, Any] = {}  # the same of the starts
        self._own_fields = _own_fields(options)
        self.choices = workload_choices(environment)

    @property
    def is_master(self) -> bool:
        """Whether requests are sent by workers."""
        return isinstance(self._environment.runner, MasterRunner)

    def groups(self, choice: Choice | None = None) -> dict[str, list[Field]]:
        """The fields for a choice of workloads; None: for all choices."""
        given = []
        for flag, value in FlagReader(self._at_start).raw.items():
            if value not in (None, "", False, DEFAULTS[flag]):
                given.append(flag)

        chosen = list(self.choices.values()) if choice is None else [choice]
        names: list[str] = []
        # Without names all fields are shown: tasks may have prompts of their own.
        if all(offered.workloads for offered in chosen):
            for offered in chosen:
                names += offered.workloads

        groups = fields(names, given, keys=not self.is_master)
        if self._own_fields:
            groups[OF_LOCUSTFILE] = self._own_fields

        return groups

    def known(self, choice: Choice | None = None) -> dict[str, Field]:
        """The same fields by name."""
        known = {}
        for group in self.groups(choice).values():
            for field in group:
                known[field.name] = field
        return known

    def choices_of(self) -> dict[str, list[str]]:
        """The names of the choices with which each field is shown.

        Only of the fields that do not belong to all.
        """
        shown = {
            name: self.known(choice).keys() for name, choice in self.choices.items()
        }
        choices_of = {}
        for field in self.known():
            names = [
                name for name, fields_shown in shown.items() if field in fields_shown
            ]
            if len(names) < len(self.choices):
                choices_of[field] = names

        return choices_of

    def values(self) -> dict[str, Any]:
        """The value of each field as the page shows it: as text, lines or a switch.

        What was typed last; keys are left out.
        """
        values = self._present() | {WORKLOAD: self._accepted.get(WORKLOAD, GIVEN)}
        if self._environment.shape_class is None:
            for name, role in (("num_users", Role.LOAD), ("num_prompts", Role.AMOUNT)):
                if not any(values.get(flag.dest) for flag in flags_with(role)):
                    values[name] = SUGGESTED[name]
        return values | self._typed

    def values_like(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """The values of the run with this manifest, as far as the form has fields for them.

        What was masked is left out.
        """
        given = self._given_by(manifest)
        values: dict[str, Any] = {}
        for name, field in self.known().items():
            if name not in given or field.kind in (SECRET, SECRET_LINES):
                continue

            value = given[name]
            text = str(value)
            if MASK in text or len(text) > MOST_CHARS:
                continue

            if field.kind == SWITCH:
                values[name] = value is True
            elif field.kind == LINES:
                lines = value if isinstance(value, list) else []
                values[name] = [printable(str(line)) for line in lines]
            else:
                values[name] = printable(_field_text(value), None)

        values[WORKLOAD] = self._choice_named(str(manifest.get("workload")))

        return values

    def _given_by(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """What a manifest says of the run's flags."""
        options = manifest.get("options")
        given = dict(options) if isinstance(options, dict) else {}
        given["num_users"] = manifest.get("users")
        given["num_prompts"] = manifest.get("num_prompts")
        given["run_time"] = manifest.get("run_time_s")
        given["label"] = manifest.get("label")
        if any(given.get(name) for name in OTHER_LOADS):
            given["num_users"] = None

        targets = manifest.get("targets")
        urls = []
        if isinstance(targets, list):
            urls = [
                str(target.get("url")) for target in targets if isinstance(target, dict)
            ]

        given["host"] = " ".join(urls) or self._environment.host

        return given

    def _choice_named(self, workload: str) -> str:
        """The choice whose user classes together have this name."""
        found = GIVEN
        for name, choice in self.choices.items():
            users = [user for user in choice.classes if hasattr(user, "workload_name")]
            if workload == " + ".join(user.workload_name() for user in users):
                found = name
        return found

    def defaults(self) -> dict[str, Any]:
        """The value that each field has without being given, where that is none that is empty."""
        known = self.known()
        defaults = {}
        for name, value in DEFAULTS.items():
            if name in known and isinstance(value, str) and value:
                defaults[name] = value
        return defaults

    def _present(self) -> dict[str, Any]:
        """The value that each field had in the last start, or on the command line.

        Known keys in them are ***.
        """
        options = self._options
        values: dict[str, Any] = {}
        for field in self.known().values():
            value = getattr(options, field.name, None)
            if field.name in self._accepted:
                values[field.name] = self._accepted[field.name]
                continue

            if field.kind in (SECRET, SECRET_LINES):
                value = None
            # Without the defaults that Locust needs.
            elif field.name in ("num_users", "spawn_rate"):
                value = getattr(self._at_start, field.name)
            elif field.name == "host":
                value = self._environment.host
            elif field.name in _JSON and value:
                value = redact_json(value)

            if field.kind == SWITCH:
                values[field.name] = str(value).lower() in ("true", "1", "on", "yes")
            elif field.kind == LINES:
                values[field.name] = FlagReader(options).lines(field.name)
            else:
                values[field.name] = _field_text(value)

        return values

    def keep(self, typed: Mapping[str, Any]) -> None:
        """Keep what was sent, without keys: for the page's next visitor."""
        values: dict[str, Any] = {}
        for field in self.known().values():
            value = typed.get(field.name)
            if value is None or field.kind in (SECRET, SECRET_LINES):
                continue

            text = str(value)
            if len(text) > MOST_CHARS:
                continue
            if field.name in _JSON and value and redact_json(text) != value:
                continue

            if field.kind == LINES:
                values[field.name] = [
                    line for line in _lines_of_field(value) if line.strip()
                ]
            elif field.kind == SWITCH:
                values[field.name] = _is_on(value)
            else:
                values[field.name] = text

        if typed.get(WORKLOAD) in self.choices:
            values[WORKLOAD] = typed[WORKLOAD]

        self._typed = values

    def choice(self, typed: Mapping[str, Any]) -> Choice:
        """The chosen workload. UsageError: there is none of this name."""
        name = typed.get(WORKLOAD, self._accepted.get(WORKLOAD, GIVEN))
        if not isinstance(name, str) or name not in self.choices:
            got = printable(str(name))
            raise UsageError(
                f"workload must be one of those that the page offers, got {got}"
            )
        return self.choices[name]

    def fill(
        self, candidate: Namespace, typed: Mapping[str, Any]
    ) -> tuple[str | None, list[str]]:
        """Put what was typed into the options.

        Returns the host, and the faults of values that cannot be read.
        """
        faults: list[str] = []
        known = self.known(self.choice(typed))
        for name in sorted(typed.keys() - self.known().keys() - {WORKLOAD}):
            faults.append(f"{printable(name)} is no field of this form")
        for name in self.known().keys() - known.keys():  # those of other workloads
            setattr(candidate, name, getattr(self._at_start, name, None))

        present = self._present()
        given: dict[str, Any] = {}
        for name, field in known.items():
            value = typed.get(name, present[name])  # what is not sent stays as it is
            if len(str(value)) > MOST_CHARS:
                faults.append(f"{field.label} is longer than {MOST_CHARS:,} characters")
            elif field.kind in (LINES, SECRET_LINES):
                given[name] = [
                    line.strip() for line in _lines_of_field(value) if line.strip()
                ] or None
            elif field.kind == SWITCH:
                given[name] = _is_on(value)
            else:
                given[name] = str(value).strip() or DEFAULTS.get(name)

        for name in given.keys() - {"host", "num_users", "spawn_rate", "run_time"}:
            is_secret = known[name].kind in (SECRET, SECRET_LINES)
            if (
                not is_secret or given[name]
            ):  # an empty key field keeps the key of the command line
                setattr(candidate, name, given[name])

        for own_field in self._own_fields:
            present_value = getattr(self._options, own_field.name)
            if given.get(own_field.name) is not None and not isinstance(
                present_value, bool | None
            ):
                kind = type(present_value)
                value = _number_field(
                    given[own_field.name],
                    kind,
                    f"{own_field.label} must be of type {kind.__name__}",
                    faults,
                )
                setattr(candidate, own_field.name, value)

        for name in _JSON:
            shown = getattr(self._options, name, None)
            if shown and given.get(name) == redact_json(shown):
                setattr(
                    candidate, name, shown
                )  # *** on the page stands for what it was

        vars(candidate).update(read_locust_flags(given, faults))
        candidate.host = given.get("host")

        return given.get("host"), faults

    def accept(self, candidate: Namespace) -> None:
        """A run with these options was started: keep them for the next start, without keys."""
        secrets = secret_values(FlagReader(candidate))
        # Fields of other workloads are as on the command line again.
        for field in self.known().values():
            if field.kind in (SECRET, SECRET_LINES):
                continue

            value = getattr(candidate, field.name, None)
            if not any(secret in str(value) for secret in secrets):
                setattr(self._options, field.name, value)

        self._accepted |= self._typed


def _field_text(value: Any) -> str:
    """The value of a field that is a text."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def _is_on(value: Any) -> bool:
    """Whether a switch that was sent is on."""
    return value is True or value == "true"


def _own_fields(options: Any) -> list[Field]:
    """The arguments that the locustfile has added to Locust's parser.

    Texts, numbers, switches and choices, but no secrets.
    """
    parser = argument_parser.get_parser()
    secret = parser.secret_args_included_in_web_ui
    ours = {flag.dest for flag in FLAGS} | argument_parser.default_args_dict().keys()
    own = []
    for name, action in parser.args_included_in_web_ui.items():
        if name in ours or name in secret or not hasattr(options, name):
            continue

        value = getattr(options, name)
        if not isinstance(value, str | int | float | None):
            continue

        kind = TEXT
        if isinstance(value, bool):
            kind = SWITCH
        elif action.choices:
            kind = CHOICE

        label = next(iter(action.option_strings), name)
        choices = tuple(map(str, action.choices or ()))
        own.append(
            Field(name, label, OF_LOCUSTFILE, action.help or "", kind, choices, name)
        )

    return own


def _lines_of_field(value: Any) -> Sequence[str]:
    if isinstance(value, list):
        return [str(line) for line in value]
    return str(value or "").splitlines()


def _number_field(
    text: str | None, kind: Callable[[str], Any], sentence: str, faults: list[str]
) -> Any:
    if not text:
        return None

    try:
        return kind(text)
    except ValueError:
        faults.append(f"{sentence}, got {text!r}")
        return None
