"""Checks of a whole plan's flags, each fault at its line.

Names in braces, and the values in every cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from llama_load.lab.sweep.cells import MOST_CELLS, Cell, conditions
from llama_load.lab.sweep.flag_values import flag_faults, placeholders
from llama_load.lab.sweep.grammar import KEEP, KINDS, LOAD, URL
from llama_load.lab.sweep.located import Faults, Node
from llama_load.lab.sweep.plan import FlagValues, Plan, PlannedServer, Setting

_NOTHING = Node(None)


def check_names(root: Node, faults: Faults) -> None:
    """Every {name} in arguments, flags and environment must be a setting of `vary`."""
    known = root.keys().get("vary", _NOTHING).keys()
    settings = ", ".join(known) or "none"
    for place in _places_of_names(root.keys()):
        for name, text in placeholders(place.node, place.flag):
            if name not in known:
                sentence = (
                    f"no setting of vary is named {name}; settings are {settings}"
                )
                faults.add(text, f"{place.where}: {sentence}")


class _Place(NamedTuple):
    """A part of a plan in which {name} is replaced; `flag`: whose value it is, if it is one's."""

    where: str
    node: Node
    flag: str


def _places_of_names(plan: dict[str, Node]) -> Iterator[_Place]:
    for name, node in plan.get("flags", _NOTHING).keys().items():
        yield _Place(f"flags.{name}", node, name)

    for name, server in plan.get("servers", _NOTHING).keys().items():
        for kind in KINDS:
            settings = server.keys().get(kind, _NOTHING).keys()
            for key in ("args", "env"):
                if key in settings:
                    yield _Place(f"servers.{name}.{kind}.{key}", settings[key], "")

    for name, setting in plan.get("vary", _NOTHING).keys().items():
        for target, node in setting.keys().items():
            words = target.removesuffix("+").split(".")
            if {"args", "env", "flags"} & set(words):
                yield _Place(f"vary.{name}.{target}", node, words[-1])

    for number, load in enumerate(plan.get("load", _NOTHING).items(), 1):
        for name, node in load.keys().items():
            if name not in LOAD.keys:
                yield _Place(f"load[{number}].{name}", node, name)

    for workload in plan.get("workload", _NOTHING).items():
        for name, node in workload.keys().get("flags", _NOTHING).keys().items():
            yield _Place(f"workload.flags.{name}", node, name)


def check_values(
    root: Node, plan: Plan, numbers: Mapping[int, int], faults: Faults
) -> None:
    """Values of flags that `locust` would refuse in any of the cells.

    `numbers`: places of loads and workloads, by their id.
    """
    usable = tuple(setting for setting in plan.settings if _is_whole(setting))
    # those of the plan may have faults of their own
    servers = plan.servers or (PlannedServer("", URL, {}, ""),)
    checked = replace(plan, servers=servers, settings=usable, after_a_cell=KEEP)

    seen = set()
    for cell in islice(conditions(checked), MOST_CELLS):
        key = repr((id(cell.load), id(cell.workload), cell.flags))
        if key in seen:
            continue
        seen.add(key)
        for name, sentence in flag_faults(cell.flags):
            where, path = _origin(name, cell, usable, plan.flags, numbers)
            faults.add(root.at(*path), f"{where}: {sentence}")


def _is_whole(setting: Setting) -> bool:
    """Whether its labels, its values and those of each target are equally many."""
    lengths = {len(setting.labels), len(setting.values)}
    for _, values in setting.targets:
        lengths.add(len(values))
    return len(lengths) == 1 and len(setting.labels) > 0


def _origin(
    name: str,
    cell: Cell,
    settings: tuple[Setting, ...],
    flags: FlagValues,
    numbers: Mapping[int, int],
) -> tuple[str, list[str | int]]:
    """Where a cell has the value of a flag from, for people and as a path."""
    for setting in reversed(settings):
        if setting.name not in cell.settings:
            continue
        for target, _ in setting.targets:
            if target.path == ("flags", name):
                key = f"flags.{name}+" if target.is_added else f"flags.{name}"
                place = setting.labels.index(cell.settings[setting.name])
                return f"vary.{setting.name}.{key}", ["vary", setting.name, key, place]

    of_others = cell.workload.flags | flags
    if name in cell.load.flags or name not in of_others:
        number = numbers[id(cell.load)]
        where = f"load[{number + 1}]"
        if name:
            where += f".{name}"
        return where, ["load", number, name]
    if name in cell.workload.flags:
        return f"workload.flags.{name}", [
            "workload",
            numbers[id(cell.workload)],
            "flags",
            name,
        ]
    return f"flags.{name}", ["flags", name]
