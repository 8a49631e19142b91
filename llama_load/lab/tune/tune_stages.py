"""The stages in which settings are raced: memory first, since it decides what fits, then throughput, then drafts."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from llama_load.errors import UsageError
from llama_load.lab.sweep.cells import Cell, expand
from llama_load.lab.sweep.grammar import AS_WRITTEN
from llama_load.lab.sweep.plan import Plan, Setting
from llama_load.targets.servers import KINDS

MEMORY, THROUGHPUT, DRAFT = STAGES = ("memory", "throughput", "draft")
MOST_SETTINGS = 64  # combinations of one stage


@dataclass(frozen=True, slots=True)
class Stage:
    """The settings that are raced together."""

    name: str
    settings: tuple[Setting, ...]


def stages_of(plan: Plan) -> list[Stage]:
    """The plan's settings by stage; a stage without any is left out. UsageError: the plan cannot be tuned."""
    if len(plan.servers) != 1 or len(plan.workloads) != 1 or len(plan.loads) != 1 or plan.loads[0].test:
        raise UsageError("tune needs a plan with one server, one workload and one load (no tests); vary only the server's flags")
    if plan.repeats != 1:
        raise UsageError("tune repeats runs as often as it takes; leave out repeats")
    varied = [setting for setting in plan.settings if len(setting.labels) > 1]
    if not varied:
        raise UsageError("tune needs settings to vary, such as vary: {threads: {qwen.args+: ['-t 4', '-t 8']}}")
    for setting in varied:
        if any(target.path[0] == "flags" for target, _ in setting.targets):
            raise UsageError(
                f"the setting {setting.name} changes the load, so its runs could not be compared; vary the server's flags"
            )
    stages = [Stage(name, tuple(setting for setting in varied if stage_of(setting) == name)) for name in STAGES]
    for stage in stages:
        count = math.prod(len(setting.labels) for setting in stage.settings)
        if count > MOST_SETTINGS:
            raise UsageError(
                f"the stage {stage.name} has {count} combinations, and {MOST_SETTINGS} are the most; vary fewer settings"
            )
    return [stage for stage in stages if stage.settings]


def stage_of(setting: Setting) -> str:
    """The stage of a setting, by the flags among its values and in its name."""
    texts = [setting.name, *(str(value) for _, values in setting.targets for value in values)]
    words = {word.partition("=")[0] for text in texts for word in text.split()} | {f"-{setting.name}", f"--{setting.name}"}
    for stage in (MEMORY, DRAFT):
        flags = "|".join(kind.tuned[stage] for kind in KINDS.values() if stage in kind.tuned)
        if any(re.fullmatch(flags, word) for word in words):
            return stage
    return THROUGHPUT


def cells_of(plan: Plan, stage: Stage, chosen: Mapping[str, int], block: int) -> list[Cell]:
    """One cell for each combination of the stage's settings, the default first; other settings have their chosen values. All
    cells of a block send the same prompts, those of the next block others."""
    racing = {setting.name for setting in stage.settings}
    settings = tuple(
        setting if setting.name in racing else fixed(setting, chosen.get(setting.name, 0)) for setting in plan.settings
    )
    return expand(replace(plan, settings=settings, order=AS_WRITTEN, repeats=1, seed=plan.seed + block))


def fixed(setting: Setting, place: int) -> Setting:
    """The setting with one of its values alone."""
    targets = tuple((target, (values[place],)) for target, values in setting.targets)
    return replace(setting, labels=(setting.labels[place],), values=(setting.values[place],), targets=targets)


def places_of(stage: Stage, number: int) -> dict[str, int]:
    """Which value each setting has in combination `number`: the last setting varies fastest, as in `cells.conditions`."""
    places: dict[str, int] = {}
    for setting in reversed(stage.settings):
        number, places[setting.name] = divmod(number, len(setting.labels))
    return places


def names(settings: Sequence[Setting], places: Mapping[str, int]) -> str:
    """`threads=-t 8, batch=-b 1024`."""
    return ", ".join(f"{setting.name}={setting.labels[places[setting.name]]}" for setting in settings)
