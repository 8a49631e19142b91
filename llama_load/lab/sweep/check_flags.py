"""Checks of a whole plan's flags, each fault at its line: names in braces, and the values in every cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice

from llama_load.lab.sweep.cells import MOST_CELLS, Cell, conditions
from llama_load.lab.sweep.flag_values import flag_faults, placeholders
from llama_load.lab.sweep.grammar import KEEP, KINDS, LOAD, URL
from llama_load.lab.sweep.located import Faults, Node
from llama_load.lab.sweep.plan import FlagValues, Plan, PlannedServer, Setting


def check_names(root: Node, faults: Faults) -> None:
    """Every {name} in arguments, flags and environment must be a setting of `vary`."""
    plan = root.keys()
    none = Node(None)
    known = plan.get("vary", none).keys()
    places = [(f"flags.{name}", node, name) for name, node in plan.get("flags", none).keys().items()]
    for name, server in plan.get("servers", none).keys().items():
        for kind in KINDS:
            own = server.keys().get(kind, none).keys()
            places += [(f"servers.{name}.{kind}.{key}", own[key], "") for key in ("args", "env") if key in own]
    for name, setting in known.items():
        for target, node in setting.keys().items():
            words = target.removesuffix("+").split(".")
            if {"args", "env", "flags"} & set(words):
                places.append((f"vary.{name}.{target}", node, words[-1]))
    for number, load in enumerate(plan.get("load", none).items(), 1):
        places += [(f"load[{number}].{name}", node, name) for name, node in load.keys().items() if name not in LOAD.keys]
    for workload in plan.get("workload", none).items():
        places += [(f"workload.flags.{name}", node, name) for name, node in workload.keys().get("flags", none).keys().items()]
    settings = ", ".join(known) or "none"
    for where, node, flag in places:
        for name, text in placeholders(node, flag):
            if name not in known:
                faults.add(text, f"{where}: no setting of vary is named {name}; settings are {settings}")


def check_values(root: Node, plan: Plan, numbers: Mapping[int, int], faults: Faults) -> None:
    """Values of flags that `locust` would refuse in any of the cells. `numbers`: places of loads and workloads, by their id."""
    usable = tuple(
        setting
        for setting in plan.settings
        if setting.labels and {len(setting.labels)} == {len(setting.values), *(len(values) for _, values in setting.targets)}
    )
    some_server = plan.servers or (PlannedServer("", URL, {}, ""),)  # those of the plan may have faults of their own
    seen = set()
    for cell in islice(conditions(replace(plan, servers=some_server, settings=usable, after_a_cell=KEEP)), MOST_CELLS):
        key = repr((id(cell.load), id(cell.workload), cell.flags))
        for name, sentence in flag_faults(cell.flags) if key not in seen else ():
            where, path = _origin(name, cell, usable, plan.flags, numbers)
            faults.add(root.at(*path), f"{where}: {sentence}")
        seen.add(key)


def _origin(
    name: str, cell: Cell, settings: tuple[Setting, ...], flags: FlagValues, numbers: Mapping[int, int]
) -> tuple[str, list[str | int]]:
    """Where a cell has the value of a flag from, for people and as a path."""
    for setting in reversed(settings):
        for target, _ in setting.targets if setting.name in cell.settings else ():
            if target.path == ("flags", name):
                key = f"flags.{name}{'+' * target.is_added}"
                place = setting.labels.index(cell.settings[setting.name])
                return f"vary.{setting.name}.{key}", ["vary", setting.name, key, place]
    if name in cell.load.flags or name not in cell.workload.flags | flags:
        number = numbers[id(cell.load)]
        return f"load[{number + 1}]{name and '.'}{name}", ["load", number, name]
    if name in cell.workload.flags:
        return f"workload.flags.{name}", ["workload", numbers[id(cell.workload)], "flags", name]
    return f"flags.{name}", ["flags", name]
