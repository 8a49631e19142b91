"""From a plan to its cells.

The cross product of servers, settings, workloads and loads, once per repeat, in order.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import msgspec

from llama_load.ground.bundled import bundled
from llama_load.ground.errors import UsageError
from llama_load.lab.sweep.grammar import (
    AS_WRITTEN,
    COMMANDS,
    KEEP,
    LEAVE,
    SHUFFLED,
    URL,
    WORDS,
)
from llama_load.lab.sweep.locustfile_flags import merged
from llama_load.lab.sweep.plan import (
    FlagValues,
    Load,
    Plan,
    PlannedServer,
    Setting,
    Target,
    Workload,
)
from llama_load.lab.sweep.tests_load import PROCESS, parse_test
from llama_load.servers.kinds import kind_named

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
    """One run: a server with all its settings, a workload, a load, and which repeat it is.

    Repeats count from 1.
    """

    server: PlannedServer
    settings: dict[str, str]  # label of each setting that applies to the server
    workload: Workload
    load: Load
    flags: FlagValues
    repeat: int
    key: str  # digest of all of the above
    folder: str

    @property
    def setting_texts(self) -> list[str]:
        """`threads=8` of each setting."""
        return [f"{name}={label}" for name, label in self.settings.items()]

    @property
    def title(self) -> str:
        """For people: server, settings, workload, load."""
        labels = [
            self.server.label,
            *self.setting_texts,
            self.workload.label,
            self.load.label,
        ]
        return ", ".join(labels)


def expand(plan: Plan) -> list[Cell]:
    """All cells, in the order in which they run. UsageError: there are too many."""
    block = []
    for condition in conditions(plan):
        block.append(condition)
        if len(block) * plan.repeats > MOST_CELLS:
            raise UsageError(
                f"the plan has over {MOST_CELLS} cells; vary less, or split it"
            )
    if not block:
        raise UsageError(
            "the plan has no cells: every server has an empty model and no URL; "
            "give one of them a model"
        )

    cells: list[Cell] = []
    numbers = range(1, plan.repeats + 1)
    if plan.order == AS_WRITTEN:
        for cell in block:
            for number in numbers:
                cells.append(_repeated(cell, number, plan))

        return cells

    draw = random.Random(plan.seed)
    # each repeat is a block of all cells: what drifts over hours meets all alike
    for number in numbers:
        repeated = []
        for cell in block:
            repeated.append(_repeated(cell, number, plan))

        if plan.order == SHUFFLED:
            draw.shuffle(repeated)
        # there and back: no cell is always the one after another (`analysis.comparison.order`)
        elif number % 2 == 0:
            repeated.reverse()
        cells += repeated
    return cells


def conditions(plan: Plan) -> Iterator[Cell]:
    """A cell of each condition, without repeat, key and folder."""
    for server in plan.servers:
        settings = []
        for setting in plan.settings:
            if _applies(setting, server, plan):
                settings.append(setting)

        # Before any is made: combinations that make no cell would be tried without end.
        if math.prod(len(setting.labels) for setting in settings) > MOST_COMBINATIONS:
            raise UsageError(
                f"the plan varies {server.name} in over {MOST_COMBINATIONS} combinations; "
                "vary less, or split it"
            )

        places_of_each = []
        for setting in settings:
            places_of_each.append(range(len(setting.labels)))

        for places in itertools.product(*places_of_each):
            variant = _variant(plan, server, list(zip(settings, places, strict=True)))
            if variant is not None:
                yield from _conditions_of(plan, variant)


@dataclass(frozen=True, slots=True)
class _Variant:
    """A server with one value of each setting, and the flags of locust that these set."""

    server: PlannedServer
    flags: FlagValues
    chosen: Chosen


def _variant(
    plan: Plan, server: PlannedServer, picks: Sequence[tuple[Setting, int]]
) -> _Variant | None:
    """The server with these values, by their places; None if it makes no cell."""
    varied = server
    flags: FlagValues = {}
    chosen: Chosen = {}
    for setting, place in picks:
        chosen[setting.name] = (setting.labels[place], setting.values[place])
        varied, flags_set = _changed(varied, setting, place)
        flags |= flags_set
    if server.kind == URL:
        return _Variant(varied, flags, chosen)

    url = str(varied.settings.get(URL, ""))
    if url:
        varied = replace(varied, kind=URL, settings={URL: url})
        for setting, place in picks:
            if _applies(setting, varied, plan):
                continue
            if place:
                # what changes only how it is started makes no further cells
                return None
            del chosen[setting.name]
        return _Variant(varied, flags, chosen)

    started = {}
    for name, value in varied.settings.items():
        if name != URL:
            started[name] = value

    needs_model = server.start is not None and not server.start.makes_model
    if needs_model and started.get("model") == "":
        return None  # the plan leaves it out
    return _Variant(replace(varied, settings=started), flags, chosen)


def _conditions_of(plan: Plan, variant: _Variant) -> Iterator[Cell]:
    """The cells of a server: every workload with every load, then the tests."""
    chosen = variant.chosen
    labels = {}
    for name, (label, _) in chosen.items():
        labels[name] = label

    server = replace(variant.server, settings=_filled(variant.server.settings, chosen))

    loads = [load for load in plan.loads if load.is_for(server.name)]
    pairs = []
    for workload in plan.workloads:
        for load in loads:
            if not load.test:
                pairs.append((workload, load))

    for load in loads:
        if load.test:
            pairs.append((_TESTS, load))

    for workload, load in pairs:
        given = merged(plan.flags, workload.flags, load.flags, variant.flags)
        flags = merged(_cache_flags(plan, server, load, given), given)
        yield Cell(server, labels, workload, load, _filled(flags, chosen), 0, "", "")


def _cache_flags(
    plan: Plan, server: PlannedServer, load: Load, given: FlagValues
) -> FlagValues:
    """What keeps prompt caches out of the figures.

    Tests process every token of their prompts, except those at a depth. A server that runs on has
    the prompts of the cells before.
    """
    if load.test:
        is_at_depth = load.depth and parse_test(load.test)[0] == PROCESS
        has_switch = server.kind == URL or kind_named(server.kind).has_cache_switch
        if has_switch and not is_at_depth:
            return {"cache-prompt": ["off"]}
        return {}

    runs_on = server.kind == URL or plan.after_a_cell == KEEP
    if runs_on and plan.cache == LEAVE and "cache-prompt" not in given:
        return {"bust-prefix-cache": [True]}
    return {}


def _applies(setting: Setting, server: PlannedServer, plan: Plan) -> bool:
    """Whether a setting changes anything for this server."""
    for target, _ in setting.targets:
        if target.path[0] == "flags":
            return True
        if target.server in ("", server.name) and is_changed(server, target):
            return True

    filled: list[object] = [server.settings, plan.flags]
    filled += [workload.flags for workload in plan.workloads]
    filled += [load.flags for load in plan.loads]
    return f"{{{setting.name}}}" in str(filled)


def is_changed(server: PlannedServer, target: Target) -> bool:
    """Whether a server of this kind has what the target changes.

    Of one that runs already only its URL can be changed.
    """
    return server.kind != URL or target.path[0] == URL


def _changed(
    server: PlannedServer, setting: Setting, place: int
) -> tuple[PlannedServer, FlagValues]:
    """The server with the setting's value, and the flags of locust that it sets."""
    flags: FlagValues = {}
    settings = dict(server.settings)
    for target, values in setting.targets:
        value = values[place]
        key = target.path[0]
        if key == "flags":
            flags[target.path[1]] = [value]
        elif target.server not in ("", server.name) or not is_changed(server, target):
            continue
        elif key == "env":
            settings[key] = settings.get(key, {}) | {target.path[1]: value}
        elif key in (*WORDS, *COMMANDS):
            changed = list(settings.get(key, [])) if target.is_added else []
            if value != "":
                changed.append(str(value) if key in WORDS else [str(value)])
            settings[key] = changed
        else:
            settings[key] = value
    return replace(server, settings=settings), flags


def _filled(value: Any, chosen: Chosen) -> Any:
    """The value with {name} of every setting replaced by its value; other braces stay."""
    if isinstance(value, str):
        return _PLACEHOLDER.sub(lambda match: _replacement(match, chosen), value)
    if isinstance(value, Mapping):
        filled = {}
        for name, part in value.items():
            filled[name] = _filled(part, chosen)

        return filled

    if isinstance(value, list | tuple):
        return [_filled(part, chosen) for part in value]
    return value


def _replacement(match: re.Match[str], chosen: Chosen) -> str:
    name = match[1]
    if name not in chosen:
        return match[0]
    _, value = chosen[name]
    return str(value)


def _repeated(cell: Cell, repeat: int, plan: Plan) -> Cell:
    """A repeat of a cell.

    All cells of a repeat send the same prompts, those of the next repeat others.
    """
    flags = {"seed": [plan.seed + repeat - 1]} | cell.flags
    load = asdict(cell.load)
    if load["search"] is None:
        del load["search"]  # plans before there were searches have the same keys
    what = {
        "server": asdict(cell.server),
        "settings": cell.settings,
        "workload": asdict(cell.workload),
        "load": load,
        "flags": flags,
        "repeat": repeat,
    }
    key = hashlib.sha256(msgspec.json.encode(what, order="sorted")).hexdigest()[:16]

    labels = [
        cell.server.name,
        *cell.setting_texts,
        cell.workload.label,
        cell.load.label,
    ]
    name = _UNSAFE.sub("_", "-".join(labels))[:100].strip("._")
    folder = f"{name}-r{repeat}-{key[:8]}"
    return replace(cell, flags=flags, repeat=repeat, key=key, folder=folder)
