"""The flags as fields of a form, in groups: first those that every run needs.

The others are in the group of the flag's row. Names are those of the parsed options.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from llama_load.loadgen.options.flag import BASICS, GROUPS, TEXTS, Flag, Role
from llama_load.loadgen.options.flags import FLAGS
from llama_load.loadgen.options.sections.locust_section import OF_LOCUST

TEXT = "text"
CHOICE = "choice"
SWITCH = "switch"
LINES = "lines"
SECRET = "secret"  # noqa: S105
SECRET_LINES = "secret lines"  # noqa: S105


@dataclass(frozen=True, slots=True)
class Field:
    """A field: its name in the options, its flag as label, its help, its kind, for `CHOICE` the
    values, and its title in words."""

    name: str
    label: str
    group: str
    help: str
    kind: str = TEXT
    choices: tuple[str, ...] = ()
    title: str = ""


def fields(
    workloads: Collection[str], given: Collection[str], *, keys: bool
) -> dict[str, list[Field]]:
    """The groups and their fields for these workloads (class names). Flags in `given` are shown in
    any case; those with keys only if `keys` is set."""
    rows = [flag for flag in OF_LOCUST + FLAGS if flag.on_page]
    if not keys:
        rows = [flag for flag in rows if not flag.secret]

    groups: dict[str, list[Field]] = {title: [] for title in (BASICS, *GROUPS[1:])}
    for flag in sorted(rows, key=_place):
        title = BASICS if flag.first else flag.group
        if title in groups and (flag.dest in given or _is_used(flag, workloads)):
            groups[title].append(_field(flag))
    return {title: shown for title, shown in groups.items() if shown}


def _place(flag: Flag) -> int:
    """Its place among the first fields, 0 for all others; sorting keeps the order of these."""
    return flag.first


def _is_used(flag: Flag, workloads: Collection[str]) -> bool:
    """Whether any of these workloads uses it. (A class that no row names, such as one of your own,
    may use any.)"""
    has_only_texts = bool(workloads) and set(workloads) <= set(TEXTS)
    if has_only_texts and Role.ANSWERS in flag.role:
        return False
    if not workloads or not flag.workloads:
        return True

    known: set[str] = set()
    for row in FLAGS:
        known.update(row.workloads)
    return any(name in flag.workloads or name not in known for name in workloads)


def _field(flag: Flag) -> Field:
    words = flag.dest.replace("_", " ").capitalize()
    return Field(
        name=flag.dest,
        label=flag.name,
        group=flag.group or "",
        help=flag.page_help or flag.help,
        kind=_kind_of_field(flag),
        choices=flag.choices or (),
        title=flag.title or words,
    )


def _kind_of_field(flag: Flag) -> str:
    if flag.switch:
        return SWITCH
    if flag.choices:
        return CHOICE
    if flag.secret:
        return SECRET_LINES if flag.repeated else SECRET
    return LINES if flag.repeated else TEXT


_FLAG = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
# What a message without a flag is about: the server's models, or the server.
_ABOUT = (
    (re.compile(r"does not serve a model"), "model"),
    (re.compile(r"https?://|no worker is connected"), "host"),
)


def fields_of(sentence: str, shown: Mapping[str, Field]) -> list[str]:
    """The names of the shown fields whose flags a message mentions, in its order; without a flag
    the field that it is about."""
    by_label = {field.label: name for name, field in shown.items()}
    mentioned = [flag for flag in _FLAG.findall(sentence) if flag in by_label]
    if mentioned:
        return list(dict.fromkeys(by_label[flag] for flag in mentioned))

    for pattern, name in _ABOUT:
        if name in shown and pattern.search(sentence):
            return [name]
    return []


def workload_names(workloads: Sequence[object]) -> list[str]:
    """The class names of these workloads, and of the tasks of a mixture."""
    names = []
    for workload in workloads:
        names.append(type(workload).__name__)
        tasks = getattr(workload, "tasks", None)
        if isinstance(tasks, dict):
            names += workload_names(list(tasks.values()))
    return names
