"""One whole search: its plan, its folder, its probes, its answer."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from llama_load.ground.errors import LlamaLoadError, UsageError
from llama_load.ground.version import __version__
from llama_load.lab.search.capacity_answer import Answer, sentence
from llama_load.lab.search.closed import search_users
from llama_load.lab.search.open_loop import search_rate
from llama_load.lab.search.real_probe import RealProbes
from llama_load.lab.search.report import write_search
from llama_load.lab.search.search_probe import Capacity, Goal
from llama_load.lab.search.state import (
    ENDED,
    FAILED,
    INTERRUPTED,
    Budget,
    SearchSettings,
    SearchState,
)
from llama_load.lab.sweep.cells import Cell, expand
from llama_load.lab.sweep.folder import open_folder
from llama_load.lab.sweep.grammar import CONCURRENCY, KEEP, RATE, SET_BY_SEARCH
from llama_load.lab.sweep.located import Faults, parse_yaml
from llama_load.lab.sweep.plan import FlagValues, Load, Plan
from llama_load.lab.sweep.read_plan import plan_of
from llama_load.lab.sweep.run_cell import CellRun
from llama_load.lab.sweep.runner import CellRunner
from llama_load.lab.sweep.running_server import RunningServer
from llama_load.lab.sweep.short_form import plan_document
from llama_load.loadgen.options.objectives import Objective, parse_objectives

# Keys of a search in a plan.
_GOAL = {
    "share": "share",
    "max-users": "most_users",
    "probe-requests": "requests_of_rate",
}


def plan_for(settings: SearchSettings) -> tuple[Plan, bytes]:
    """The plan of the probes, without their loads, and its text.

    UsageError: a flag cannot be given, or is the search's own.
    """
    document = plan_document([settings.serve], [], settings.locust, 1)
    flags: dict[str, Any] = document["load"][0]
    for name in flags:
        if name in SET_BY_SEARCH:
            own = "--goodput before the --" if name == "goodput" else "the probes' own"
            raise UsageError(f"--{name} is set by the search ({own}); leave it out")

    document["load"] = [_probe_flags(flags, settings.objectives)]
    document |= {"after-a-cell": KEEP, "idle-s": 0, "seed": settings.seed}
    text = yaml.safe_dump(document, allow_unicode=True, sort_keys=False)

    faults = Faults("the plan of the search")
    plan = plan_of(parse_yaml(text, faults.source, faults), {}, faults)
    return plan, text.encode()


def search(settings: SearchSettings, out: Path, say: Callable[[str], None]) -> Answer:
    """Search, or continue what was interrupted in the same folder.

    UsageError: the folder is that of another search.
    """
    plan, text = plan_for(settings)
    return _search(settings, plan, text, out, say=say)


def search_cell(
    cell: Cell, server: RunningServer, folder: Path, limit_s: float
) -> CellRun:
    """Search the capacity of a sweep's cell, or continue that; see `sweep.runner.Searcher`.

    The folder is that of a search.
    """
    settings = _settings_of(cell, limit_s)
    flags = {}
    for name, values in cell.flags.items():
        if name != "seed":
            flags[name] = values

    plan = Plan(
        (cell.server,),
        (Load("", _probe_flags(flags, settings.objectives)),),
        (replace(cell.workload, flags={}),),
        seed=settings.seed,
        after_a_cell=KEEP,
        idle_s=0,
    )

    try:
        answer = _search(settings, plan, cell.title.encode(), folder, server=server)
    except LlamaLoadError as error:
        return CellRun(1, str(error))
    write_search(answer, folder, cell.title)
    if answer.capacity.value is None:
        return CellRun(1, sentence(answer))
    return CellRun(0, "")


def _settings_of(cell: Cell, limit_s: float) -> SearchSettings:
    """The search that a plan gives a cell, which may take `limit_s`."""
    given = dict(cell.load.search or {})
    goal = {}
    for key, name in _GOAL.items():
        if key in given:
            goal[name] = given[key]

    time_s = min(limit_s, given.get("max-time", limit_s))
    return SearchSettings(
        vary=given.get("vary", CONCURRENCY),
        serve="",
        locust=(),
        objectives=parse_objectives(given["goodput"]),
        goal=Goal(**goal),
        seed=int(cell.flags["seed"][0]),
        budget=Budget(time_s, given.get("max-requests")),
    )


def _probe_flags(flags: FlagValues, objectives: Sequence[Objective]) -> FlagValues:
    """The flags of all probes; objectives of one workload are judged by the search alone."""
    probe_flags = flags | {"no-report-html": [True]}
    general = []
    for objective in objectives:
        if not objective.workload:
            general.append(objective.slo.text)

    if general:
        probe_flags["goodput"] = [" ".join(general)]
    return probe_flags


def _search(
    settings: SearchSettings,
    plan: Plan,
    text: bytes,
    out: Path,
    *,
    server: RunningServer | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Answer:
    """`server`: of the cell whose capacity is searched."""
    # Probes are not known beforehand: what is searched stands for them where a folder is continued.
    about = f"{settings.vary} {settings.goals} {settings.goal}"
    key = hashlib.sha256(about.encode()).hexdigest()[:16]
    cells = []
    for cell in expand(plan):
        cells.append(replace(cell, key=f"{cell.key}-{key}"))

    with (
        closing(open_folder(out, cells, text, __version__)) as folder,
        closing(CellRunner(plan, folder, server=server)) as runner,
    ):
        state = SearchState(out, settings, say)
        probes = RealProbes(settings, plan, folder, runner, state)
        try:
            capacity = _capacity(settings, probes)
            answer = Answer(
                settings,
                capacity,
                probes.slots,
                probes.backend,
                list(probes.notes),
                list(probes.against),
            )
            state.over(ENDED, sentence(answer))
        except KeyboardInterrupt:
            state.over(INTERRUPTED, "interrupted; it continues with the same --out")
            raise
        except LlamaLoadError as error:
            state.over(FAILED, str(error))
            raise
    return answer


def _capacity(settings: SearchSettings, probes: RealProbes) -> Capacity:
    if settings.vary == RATE:
        return search_rate(probes.rate, probes.users, settings.goal, settings.seed)
    return search_users(probes.users, settings.goal, settings.seed)
