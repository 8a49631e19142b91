"""The values of a plan's flags, checked before anything starts.

By the readers that Locust's own process uses.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from llama_load.ground.errors import UsageError
from llama_load.lab.sweep.located import Node
from llama_load.lab.sweep.locustfile_flags import FLAGS_BY_NAME, LETTERS
from llama_load.lab.sweep.plan import FlagValues
from llama_load.loadgen.options.flag import Kind
from llama_load.loadgen.options.flag_reader import FlagReader
from llama_load.loadgen.options.form import Field, fields_of
from llama_load.loadgen.options.locust_flags import read_locust_flags, refuse_conflicts
from llama_load.loadgen.options.options import read_options
from llama_load.loadgen.options.secret_flags import secret_values

# Not {{name}}, and not {2} of a regular expression.
_PLACEHOLDER = re.compile(r"(?<!\{)\{([^\W\d][\w.-]*)\}(?!\})")
# Texts in which braces may mean something else.
_FREE = (Kind.JSON, Kind.HEADER, Kind.TEXT)
_OF_A_VALUE = re.compile(
    r"(?<![\w-])--?[\w-]++(?: must| takes|:| '[^']*' is not valid:) "
)


def placeholders(node: Node, flag: str = "") -> Iterator[tuple[str, Node]]:
    """The names in braces of all texts in a node, with the text's node.

    `flag`: the flag whose value it is.
    """
    if flag in FLAGS_BY_NAME and FLAGS_BY_NAME[flag].kind in _FREE:
        return
    if isinstance(node.value, str):
        for name in _PLACEHOLDER.findall(node.value):
            yield name, node
    elif isinstance(node.value, dict):
        for child in node.value.values():
            yield from placeholders(child)
    elif isinstance(node.value, list):
        for child in node.value:
            yield from placeholders(child)


def flag_faults(flags: FlagValues) -> list[tuple[str, str]]:
    """What is wrong with the flags of a cell, its {name} filled.

    Each fault's flag (empty if it names none) and sentence.
    """
    if "config" in flags:  # the file may give the rest
        return []

    faults = []
    readable = {}
    shown = {}
    are_all_read = True
    for name, values in flags.items():
        if values == [""]:  # a value of `set` that was left empty
            continue
        option = LETTERS[name].name if name in LETTERS else f"--{name}"
        shown[name] = Field(name, option, "", "")

        is_known = _is_known(name, values)
        fault = _kind_fault(name, values) if is_known else ""
        if fault:
            faults.append((name, fault))
        if is_known and not fault:
            readable[name] = values
        else:
            are_all_read = False

    for sentence in _read_faults(readable):
        # without all flags, conflicts cannot be told
        if are_all_read or _OF_A_VALUE.match(sentence):
            flag = next(iter(fields_of(sentence, shown)), "")
            faults.append((flag, sentence))
    return faults


def _is_known(name: str, values: list[Any] | None) -> bool:
    """Whether these are values, and no {name} is left in them."""
    if values is None or None in values:
        return False
    node = Node([Node(value) for value in values])
    return not any(placeholders(node, name))


def _kind_fault(name: str, values: list[Any]) -> str:
    """A value that would not reach Locust.

    Of a switch that is neither on nor off, or none of another flag.
    """
    flag = FLAGS_BY_NAME.get(name) or LETTERS.get(name)
    if flag is None:
        return ""
    if flag.switch:
        return (
            ""
            if isinstance(values[-1], bool)
            else f"must be true or false, got {values[-1]!r}"
        )

    if flag.kind is Kind.HEADER:
        headers = SimpleNamespace(**{flag.dest: list(map(str, values))})
        if secret_values(FlagReader(headers)):
            return (
                f"may hold a key, and plans are stored: "
                f"set {flag.environment} in the environment instead"
            )
    if any(isinstance(value, bool) for value in values):
        return (
            "needs a value; YAML reads on, off, yes and no as true and false "
            "unless they are quoted"
        )
    return ""


def _read_faults(given: FlagValues) -> list[str]:
    """The messages of the readers for these flags and the environment, which cells have as well."""
    values: dict[str, Any] = {}
    for name, flag in FLAGS_BY_NAME.items():
        if name not in given:
            text = os.environ.get(flag.environment)
            if text is not None:
                values[flag.dest] = text
        elif flag.switch:
            values[flag.dest] = given[name][-1]
        elif flag.repeated:
            values[flag.dest] = list(map(str, given[name]))
        else:
            values[flag.dest] = ",".join(map(str, given[name]))

    letters = {}
    for name, texts in given.items():
        if name in LETTERS:
            letters[LETTERS[name].dest] = ",".join(map(str, texts))

    faults: list[str] = []
    locusts = SimpleNamespace(
        **read_locust_flags(letters, faults), stages=values.get("stages", "")
    )
    try:
        options = read_options(SimpleNamespace(**values))
        if not faults:
            refuse_conflicts(locusts, options)
    except UsageError as error:
        faults += str(error).splitlines()
    return faults
