"""The values of a plan's flags, checked before anything starts by the readers that Locust's own process uses."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from llama_load.errors import UsageError
from llama_load.lab.sweep.located import Node
from llama_load.lab.sweep.locustfile_flags import SWITCHES
from llama_load.lab.sweep.plan import FlagValues
from llama_load.lab.sweep.time_needed import time_s
from llama_load.options.flag_reader import FlagReader
from llama_load.options.flags import FLAGS
from llama_load.options.form import Field, fields_of
from llama_load.options.locust_flags import refuse_conflicts
from llama_load.options.options import HEADER, read_options, secret_values

# Not {{name}}, and not {2} of a regular expression.
_PLACEHOLDER = re.compile(r"(?<!\{)\{([^\W\d][\w.-]*)\}(?!\})")
# Texts in which braces may mean something else.
_FREE = ("extra-body", "header", "question", "system-prompt")
_OURS = {flag.name.removeprefix("--"): flag for flag in FLAGS}
_LETTERS = {"u": "-u", "users": "-u", "r": "-r", "spawn-rate": "-r", "t": "-t", "run-time": "-t"}
_OF_A_VALUE = re.compile(r"--?[\w-]+(?: must| takes|:| '[^']*' is not valid:) ")


def placeholders(node: Node, flag: str = "") -> Iterator[tuple[str, Node]]:
    """The names in braces of all texts in a node, with the text's node. `flag`: the flag whose value it is."""
    if flag in _FREE:
        return
    if isinstance(node.value, dict | list):
        for each in node.value.values() if isinstance(node.value, dict) else node.value:
            yield from placeholders(each)
    elif isinstance(node.value, str):
        for name in _PLACEHOLDER.findall(node.value):
            yield name, node


def flag_faults(flags: FlagValues) -> list[tuple[str, str]]:
    """What is wrong with the flags of a cell, its {name} filled: each fault's flag (empty if it names none) and sentence."""
    if "config" in flags:  # the file may give the rest
        return []
    given = {name: values for name, values in flags.items() if values != [""]}  # values of `set` that were left empty
    unknown = {
        name
        for name, values in given.items()
        if values is None or None in values or any(placeholders(Node(list(map(Node, values))), name))
    }
    faults = [(name, fault) for name, values in given.items() if name not in unknown and (fault := _kind_fault(name, values))]
    left_out = unknown | {name for name, _ in faults}
    read = {name: values for name, values in given.items() if name not in left_out}
    shown = {name: Field(name, _LETTERS.get(name, f"--{name}"), "", "") for name in given}
    for sentence in _read_faults(read):
        if not left_out or _OF_A_VALUE.match(sentence):  # without all flags, conflicts cannot be told
            faults.append((next(iter(fields_of(sentence, shown)), ""), sentence))
    return faults


def _kind_fault(name: str, values: list[Any]) -> str:
    """A value that would not reach Locust: of a switch that is neither on nor off, or none of another flag."""
    if name in SWITCHES:
        return "" if isinstance(values[-1], bool) else f"must be true or false, got {values[-1]!r}"
    if name == HEADER and secret_values(FlagReader(SimpleNamespace(header=list(map(str, values))))):
        return "may hold a key, and plans are stored: set LLAMA_LOAD_HEADER in the environment instead"
    is_known = name in _OURS or name in _LETTERS
    if is_known and any(isinstance(value, bool) for value in values):
        return "needs a value; YAML reads on, off, yes and no as true and false unless they are quoted"
    return ""


def _read_faults(given: FlagValues) -> list[str]:
    """The messages of the readers for these flags and the environment, which cells have as well."""
    values: dict[str, Any] = {}
    for name, flag in _OURS.items():
        if name in given:
            texts = list(map(str, given[name]))
            values[flag.dest] = given[name][-1] if flag.switch else texts if flag.repeated else ",".join(texts)
        elif (text := os.environ.get(f"LLAMA_LOAD_{flag.dest.upper()}")) is not None:
            values[flag.dest] = text
    faults: list[str] = []
    letters = {_LETTERS[name]: ",".join(map(str, each)) for name, each in given.items() if name in _LETTERS}
    locusts = SimpleNamespace(
        num_users=_number(letters.get("-u"), int, "-u must be a whole number of at least 1", faults),
        spawn_rate=_number(letters.get("-r"), float, "-r must be a number of users a second", faults),
        run_time=_number(letters.get("-t"), _seconds, "-t must be a time such as 90s, 10m or 1h30m", faults),
        stages=values.get("stages", ""),
    )
    try:
        options = read_options(SimpleNamespace(**values))
        if not faults:
            refuse_conflicts(locusts, options)
    except UsageError as error:
        faults += str(error).splitlines()
    return faults


def _seconds(text: str) -> float:
    seconds = time_s(text)
    if seconds is None or not (text.isdecimal() or text[-1] in "hms"):  # Locust wants the unit behind another one: no 1m20
        raise ValueError(text)
    return seconds


def _number(text: str | None, kind: Any, wanted: str, faults: list[str]) -> Any:
    try:
        return None if text is None else kind(text)
    except ValueError:
        faults.append(f"{wanted}, got {text!r}")
        return None
