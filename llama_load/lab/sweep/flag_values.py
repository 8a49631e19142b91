"""The values of a plan's flags, checked before anything starts by the readers that Locust's own process uses."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from llama_load.errors import UsageError
from llama_load.lab.sweep.located import Node
from llama_load.lab.sweep.locustfile_flags import FLAGS_BY_NAME, LETTERS
from llama_load.lab.sweep.plan import FlagValues
from llama_load.options.flag import Kind
from llama_load.options.flag_reader import FlagReader
from llama_load.options.form import Field, fields_of
from llama_load.options.locust_flags import read_locust_flags, refuse_conflicts
from llama_load.options.options import read_options
from llama_load.options.secret_flags import secret_values

# Not {{name}}, and not {2} of a regular expression.
_PLACEHOLDER = re.compile(r"(?<!\{)\{([^\W\d][\w.-]*)\}(?!\})")
# Texts in which braces may mean something else.
_FREE = (Kind.JSON, Kind.HEADER, Kind.TEXT)
_OF_A_VALUE = re.compile(r"(?<![\w-])--?[\w-]++(?: must| takes|:| '[^']*' is not valid:) ")


def placeholders(node: Node, flag: str = "") -> Iterator[tuple[str, Node]]:
    """The names in braces of all texts in a node, with the text's node. `flag`: the flag whose value it is."""
    if flag in FLAGS_BY_NAME and FLAGS_BY_NAME[flag].kind in _FREE:
        return
    if isinstance(node.value, dict | list):
        for child in node.value.values() if isinstance(node.value, dict) else node.value:
            yield from placeholders(child)
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
    shown = {name: Field(name, LETTERS[name].name if name in LETTERS else f"--{name}", "", "") for name in given}
    for sentence in _read_faults(read):
        if not left_out or _OF_A_VALUE.match(sentence):  # without all flags, conflicts cannot be told
            faults.append((next(iter(fields_of(sentence, shown)), ""), sentence))
    return faults


def _kind_fault(name: str, values: list[Any]) -> str:
    """A value that would not reach Locust: of a switch that is neither on nor off, or none of another flag."""
    flag = FLAGS_BY_NAME.get(name) or LETTERS.get(name)
    if flag is None:
        return ""
    if flag.switch:
        return "" if isinstance(values[-1], bool) else f"must be true or false, got {values[-1]!r}"
    if flag.kind is Kind.HEADER and secret_values(FlagReader(SimpleNamespace(**{flag.dest: list(map(str, values))}))):
        return f"may hold a key, and plans are stored: set {flag.environment} in the environment instead"
    if any(isinstance(value, bool) for value in values):
        return "needs a value; YAML reads on, off, yes and no as true and false unless they are quoted"
    return ""


def _read_faults(given: FlagValues) -> list[str]:
    """The messages of the readers for these flags and the environment, which cells have as well."""
    values: dict[str, Any] = {}
    for name, flag in FLAGS_BY_NAME.items():
        if name in given:
            texts = list(map(str, given[name]))
            values[flag.dest] = given[name][-1] if flag.switch else texts if flag.repeated else ",".join(texts)
        elif (text := os.environ.get(flag.environment)) is not None:
            values[flag.dest] = text
    faults: list[str] = []
    letters = {LETTERS[name].dest: ",".join(map(str, texts)) for name, texts in given.items() if name in LETTERS}
    locusts = SimpleNamespace(**read_locust_flags(letters, faults), stages=values.get("stages", ""))
    try:
        options = read_options(SimpleNamespace(**values))
        if not faults:
            refuse_conflicts(locusts, options)
    except UsageError as error:
        faults += str(error).splitlines()
    return faults
