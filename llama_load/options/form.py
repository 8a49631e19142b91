"""The flags as fields of a form, in groups: first those that every run needs, then the group of the flag's row.

The names are those of the parsed options.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from llama_load.options.flag import BASICS, GROUPS, TEXTS, Flag, Role
from llama_load.options.flags import FLAGS, OF_LOCUST

TEXT, CHOICE, SWITCH, LINES, SECRET, SECRET_LINES = "text", "choice", "switch", "lines", "secret", "secret lines"


@dataclass(frozen=True, slots=True)
class Field:
    """A field: its name in the options, its flag as label, its help, its kind, for `CHOICE` the values, and its title in words."""

    name: str
    label: str
    group: str
    help: str
    kind: str = TEXT
    choices: tuple[str, ...] = ()
    title: str = ""


def fields(workloads: Collection[str], given: Collection[str], *, keys: bool) -> dict[str, list[Field]]:
    """The groups and their fields for these workloads (class names). Flags in `given` are shown in any case; those with keys
    only if `keys` is set."""
    rows = [
        flag
        for flag in (*OF_LOCUST, *FLAGS)
        if flag.on_page and (keys or not flag.secret) and (flag.dest in given or _is_used(flag, workloads))
    ]
    groups = {BASICS: [_field(flag) for flag in sorted(rows, key=lambda flag: flag.first) if flag.first]}
    groups |= {title: [_field(flag) for flag in rows if flag.group == title and not flag.first] for title in GROUPS[1:]}
    return {title: shown for title, shown in groups.items() if shown}


def _is_used(flag: Flag, workloads: Collection[str]) -> bool:
    """Whether any of these workloads uses it. (A class that no row names, such as one of your own, may use any.)"""
    if workloads and Role.ANSWERS in flag.role and set(workloads) <= set(TEXTS):
        return False
    known = {name for row in FLAGS for name in row.workloads}
    return not workloads or not flag.workloads or any(name in flag.workloads or name not in known for name in workloads)


def _field(flag: Flag) -> Field:
    kind = (SECRET_LINES if flag.repeated else SECRET) if flag.secret else LINES if flag.repeated else TEXT
    kind = SWITCH if flag.switch else CHOICE if flag.choices else kind
    shown_help = flag.page_help or flag.help
    return Field(flag.dest, flag.name, flag.group or "", shown_help, kind, flag.choices or (), flag.title_in_words)


_FLAG = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
# What a message without a flag is about: the server's models, or the server.
_ABOUT = ((re.compile(r"does not serve a model"), "model"), (re.compile(r"https?://|no worker is connected"), "host"))


def fields_of(sentence: str, shown: Mapping[str, Field]) -> list[str]:
    """The names of the shown fields whose flags a message mentions, in its order; without a flag the field that it is about."""
    by_label = {field.label: name for name, field in shown.items()}
    named = dict.fromkeys(by_label[flag] for flag in _FLAG.findall(sentence) if flag in by_label)
    return list(named) or [name for pattern, name in _ABOUT if name in shown and pattern.search(sentence)][:1]


def workload_names(workloads: Sequence[object]) -> list[str]:
    """The class names of these workloads, and of the tasks of a mixture."""
    names = []
    for workload in workloads:
        names.append(type(workload).__name__)
        tasks = getattr(workload, "tasks", None)
        names += workload_names(list(tasks.values())) if isinstance(tasks, dict) else []
    return names
