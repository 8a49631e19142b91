"""From a plan to its cells: the cross product of servers, settings, workloads and loads, once per repeat, in order."""

from __future__ import annotations

import hashlib
import itertools
import math
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import msgspec

from llama_load.bundled import bundled
from llama_load.errors import UsageError
from llama_load.lab.sweep.grammar import AS_WRITTEN, COMMANDS, KEEP, LEAVE, SHUFFLED, URL, WORDS
from llama_load.lab.sweep.locustfile_flags import merged
from llama_load.lab.sweep.plan import FlagValues, Load, Plan, PlannedServer, Setting, Target, Workload
from llama_load.lab.sweep.tests_load import PROCESS, parse_test
from llama_load.targets.servers import kind_named

MOST_CELLS = 10_000
# Of the values that are varied, for one server; some make no cell.
MOST_COMBINATIONS = 10 * MOST_CELLS
_PLACEHOLDER = re.compile(r"\{([\w.-]+)\}")
# Keeps other than this out of folder names.
_UNSAFE = re.compile(r"[^\w.=+-]+")
# Of all tests, whatever the plan's workloads are.
_TESTS = Workload(str(bundled("locustfiles/synthetic.py")), "synthetic")
Chosen = dict[str, tuple[str, Any]]


@dataclass(frozen=True, slots=True)
class Cell:
    """One run: a server with all its settings, a workload, a load, and which repeat it is (from 1)."""

    server: PlannedServer
    settings: dict[str, str]  # label of each setting that applies to the server
    workload: Workload
    load: Load
    flags: FlagValues
    repeat: int
    key: str  # digest of all of the above
    folder: str

    @property
    def title(self) -> str:
        """For people: server, settings, workload, load."""
        settings = [f"{name}={label}" for name, label in self.settings.items()]
        return ", ".join([self.server.label, *settings, self.workload.label, self.load.label])


def expand(plan: Plan) -> list[Cell]:
    """All cells, in the order in which they run. UsageError: there are too many."""
    block = []
    for condition in conditions(plan):
        block.append(condition)
        if len(block) * plan.repeats > MOST_CELLS:
            raise UsageError(f"the plan has over {MOST_CELLS} cells; vary less, or split it")
    if not block:
        raise UsageError("the plan has no cells: every server has an empty model and no URL; give one of them a model")
    numbers = range(1, plan.repeats + 1)
    if plan.order == AS_WRITTEN:
        return [_repeated(cell, number, plan) for cell in block for number in numbers]
    cells: list[Cell] = []
    draw = random.Random(plan.seed)
    for number in numbers:  # each repeat is a block of all cells: what drifts over hours meets all alike
        repeated = [_repeated(cell, number, plan) for cell in block]
        if plan.order == SHUFFLED:
            draw.shuffle(repeated)
        elif number % 2 == 0:  # there and back: no cell is always the one after another (`comparison.order`)
            repeated.reverse()
        cells += repeated
    return cells


def conditions(plan: Plan) -> Iterator[Cell]:
    """A cell of each condition, without repeat, key and folder."""
    for server in plan.servers:
        applying = [setting for setting in plan.settings if _applies(setting, server, plan)]
        values = [range(len(setting.labels)) for setting in applying]
        # Before any is made: combinations that make no cell would be tried without end.
        if math.prod(map(len, values)) > MOST_COMBINATIONS:
            raise UsageError(f"the plan varies {server.name} in over {MOST_COMBINATIONS} combinations; vary less, or split it")
        for places in itertools.product(*values):
            chosen: Chosen = {}
            varied = server
            flags: FlagValues = {}
            for setting, place in zip(applying, places, strict=True):
                chosen[setting.name] = (setting.labels[place], setting.values[place])
                varied, own = _changed(varied, setting, place)
                flags |= own
            url = "" if server.kind == URL else str(varied.settings.get(URL, ""))
            if url:
                varied = replace(varied, kind=URL, settings={URL: url})
                inert = [setting.name for setting in applying if not _applies(setting, varied, plan)]
                if any(place for setting, place in zip(applying, places, strict=True) if setting.name in inert):
                    continue  # what changes only how it is started makes no further cells
                chosen = {name: value for name, value in chosen.items() if name not in inert}
            elif server.kind != URL:
                varied = replace(varied, settings={name: value for name, value in varied.settings.items() if name != URL})
            if not url and server.start and not server.start.makes_model and varied.settings.get("model") == "":
                continue  # the plan leaves it out
            labels = {name: label for name, (label, _) in chosen.items()}
            ready = replace(varied, settings=_filled(varied.settings, chosen))
            loads = [load for load in plan.loads if server.name in (load.servers or (server.name,))]
            pairs = [(workload, load) for workload in plan.workloads for load in loads if not load.test]
            for workload, load in [*pairs, *((_TESTS, load) for load in loads if load.test)]:
                own_flags = merged(plan.flags, workload.flags, load.flags, flags)
                merged_flags = merged(_cache_flags(plan, ready, load, own_flags), own_flags)
                yield Cell(ready, labels, workload, load, _filled(merged_flags, chosen), 0, "", "")


def _cache_flags(plan: Plan, server: PlannedServer, load: Load, given: FlagValues) -> FlagValues:
    """What keeps prompt caches out of the figures. Tests process every token of their prompts, except those at a depth. A server
    that runs on has the prompts of the cells before."""
    if load.test:
        is_at_depth = load.depth and parse_test(load.test)[0] == PROCESS
        has_switch = server.kind == URL or kind_named(server.kind).has_cache_switch
        return {"cache-prompt": ["off"]} if has_switch and not is_at_depth else {}
    runs_on = server.kind == URL or plan.after_a_cell == KEEP
    return {"bust-prefix-cache": [True]} if runs_on and plan.cache == LEAVE and "cache-prompt" not in given else {}


def _applies(setting: Setting, server: PlannedServer, plan: Plan) -> bool:
    """Whether a setting changes anything for this server."""
    if any(target.path[0] == "flags" or (target.server in ("", server.name) and is_changed(server, target))
           for target, _ in setting.targets):  # fmt: skip
        return True
    places = [server.settings, plan.flags, *(workload.flags for workload in plan.workloads), *(load.flags for load in plan.loads)]
    return f"{{{setting.name}}}" in str(places)


def is_changed(server: PlannedServer, target: Target) -> bool:
    """Whether a server of this kind has what the target changes: of one that runs already only its URL can be changed."""
    return server.kind != URL or target.path[0] == URL


def _changed(server: PlannedServer, setting: Setting, place: int) -> tuple[PlannedServer, FlagValues]:
    """The server with the setting's value, and the flags of locust that it sets."""
    flags: FlagValues = {}
    settings = dict(server.settings)
    for target, values in setting.targets:
        value = values[place]
        if target.path[0] == "flags":
            flags[target.path[1]] = [value]
        elif target.server in ("", server.name) and is_changed(server, target):
            key = target.path[0]
            if key == "env":
                settings[key] = settings.get(key, {}) | {target.path[1]: value}
            elif key in (*WORDS, *COMMANDS):
                before = settings.get(key, []) if target.is_added else []
                own = str(value) if key in WORDS else [str(value)]
                settings[key] = [*before, own] if value != "" else [*before]
            else:
                settings[key] = value
    return replace(server, settings=settings), flags


def _filled(value: Any, chosen: Chosen) -> Any:
    """The value with {name} of every setting replaced by its value; other braces stay."""
    if isinstance(value, str):
        return _PLACEHOLDER.sub(lambda match: str(chosen[match[1]][1]) if match[1] in chosen else match[0], value)
    if isinstance(value, Mapping):
        return {name: _filled(part, chosen) for name, part in value.items()}
    return [_filled(part, chosen) for part in value] if isinstance(value, list | tuple) else value


def _repeated(cell: Cell, repeat: int, plan: Plan) -> Cell:
    """A repeat of a cell. All cells of a repeat send the same prompts, those of the next repeat others."""
    flags = {"seed": [plan.seed + repeat - 1]} | cell.flags
    load = {name: value for name, value in asdict(cell.load).items() if name != "search" or value is not None}
    what = {
        "server": asdict(cell.server),
        "settings": cell.settings,
        "workload": asdict(cell.workload),
        "load": load,
        "flags": flags,
        "repeat": repeat,
    }
    key = hashlib.sha256(msgspec.json.encode(what, order="sorted")).hexdigest()[:16]
    labels = [cell.server.name, *(f"{name}={label}" for name, label in cell.settings.items()), cell.workload.label, cell.load.label]
    name = _UNSAFE.sub("_", "-".join(labels))[:100].strip("._")
    return replace(cell, flags=flags, repeat=repeat, key=key, folder=f"{name}-r{repeat}-{key[:8]}")
