"""The stages in which settings are raced.

Memory first, since it decides what fits, then throughput, then drafts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from llama_load.ground.errors import UsageError
from llama_load.lab.sweep.cells import Cell, expand
from llama_load.lab.sweep.grammar import AS_WRITTEN
from llama_load.lab.sweep.plan import Plan, Setting
from llama_load.servers.kinds import KINDS

MEMORY = "memory"
THROUGHPUT = "throughput"
DRAFT = "draft"
STAGES = (MEMORY, THROUGHPUT, DRAFT)
USERS = ("u", "users")  # flags that set the number of users
MOST_SETTINGS = 64  # combinations of one stage


@dataclass(frozen=True, slots=True)
class Stage:
    """The settings that are raced together."""

    name: str
    settings: tuple[Setting, ...]


def stages_of(plan: Plan) -> list[Stage]:
    """The plan's settings by stage; a stage without any is left out.

    UsageError: the plan cannot be tuned.
    """
    has_one_of_each = len(plan.servers) == len(plan.workloads) == len(plan.loads) == 1
    if not has_one_of_each or plan.loads[0].test:
        raise UsageError(
            "tune needs a plan with one server, one workload and one load (no tests); "
            "vary only the server's flags"
        )
    if plan.repeats != 1:
        raise UsageError("tune repeats runs as often as it takes; leave out repeats")

    varied = []
    for setting in plan.settings:
        if len(setting.labels) > 1:
            varied.append(setting)

    if not varied:
        raise UsageError(
            "tune needs settings to vary, such as vary: {threads: {qwen.args+: ['-t 4', '-t 8']}}"
        )
    for setting in varied:
        if any(target.path[0] == "flags" for target, _ in setting.targets):
            raise UsageError(
                f"the setting {setting.name} changes the load, so its runs could not be compared; "
                "vary the server's flags"
            )

    by_stage: dict[str, list[Setting]] = {name: [] for name in STAGES}
    for setting in varied:
        by_stage[stage_of(setting)].append(setting)

    stages = []
    for name, settings in by_stage.items():
        if not settings:
            continue
        count = math.prod(len(setting.labels) for setting in settings)
        if count > MOST_SETTINGS:
            raise UsageError(
                f"the stage {name} has {count} combinations, and {MOST_SETTINGS} are the most; "
                "vary fewer settings"
            )
        stages.append(Stage(name, tuple(settings)))
    return stages


def stage_of(setting: Setting) -> str:
    """The stage of a setting, by the flags among its values and in its name."""
    words = setting.name.split()
    for _, values in setting.targets:
        for value in values:
            words += str(value).split()
    # The flag of `--flag=value`.
    flags = set()
    for word in words:
        flags.add(word.partition("=")[0])

    flags |= {f"-{setting.name}", f"--{setting.name}"}

    for stage in (MEMORY, DRAFT):
        patterns = []
        for kind in KINDS.values():
            if stage in kind.tuned:
                patterns.append(kind.tuned[stage])

        any_flag = "|".join(patterns)
        if any(re.fullmatch(any_flag, flag) for flag in flags):
            return stage
    return THROUGHPUT


def check_concurrency(plan: Plan, stages: Sequence[Stage]) -> None:
    """UsageError: the plan has no settings of drafts, or its load sets no users."""
    if stages[-1].name != DRAFT:
        raise UsageError(
            "--concurrency races settings of drafts, and the plan varies none, such as "
            "vary: {drafts: {qwen.args+: ['--spec-draft-n-max 4', '--spec-draft-n-max 16']}}"
        )
    if not any(name in plan.loads[0].flags for name in USERS):
        raise UsageError("--concurrency needs a load of users, such as load: {u: 8}")


def with_users(plan: Plan, users: int) -> Plan:
    """The plan with a load of so many users."""
    load = plan.loads[0]
    flags = {name: value for name, value in load.flags.items() if name not in USERS}
    load = replace(load, label=f"{users} users", flags=flags | {"u": [users]})
    return replace(plan, loads=(load,))


def cells_of(
    plan: Plan, stage: Stage, chosen: Mapping[str, int], block: int
) -> list[Cell]:
    """One cell for each combination of the stage's settings, the default first.

    Other settings have their chosen values. All cells of a block send the same prompts, those of
    the next block others.
    """
    racing = {setting.name for setting in stage.settings}

    settings = []
    for setting in plan.settings:
        if setting.name not in racing:
            setting = fixed(setting, chosen.get(setting.name, 0))
        settings.append(setting)

    block_plan = replace(
        plan,
        settings=tuple(settings),
        order=AS_WRITTEN,
        repeats=1,
        seed=plan.seed + block,
    )
    return expand(block_plan)


def fixed(setting: Setting, place: int) -> Setting:
    """The setting with one of its values alone."""
    targets = tuple((target, (values[place],)) for target, values in setting.targets)
    return replace(
        setting,
        labels=(setting.labels[place],),
        values=(setting.values[place],),
        targets=targets,
    )


def places_of(stage: Stage, number: int) -> dict[str, int]:
    """Which value each setting has in combination `number`.

    The last setting varies fastest, as in `cells.conditions`.
    """
    places: dict[str, int] = {}
    for setting in reversed(stage.settings):
        number, place = divmod(number, len(setting.labels))
        places[setting.name] = place
    return places


def names(settings: Sequence[Setting], places: Mapping[str, int]) -> str:
    """`threads=-t 8, batch=-b 1024`."""
    chosen = []
    for setting in settings:
        label = setting.labels[places[setting.name]]
        chosen.append(f"{setting.name}={label}")
    return ", ".join(chosen)
