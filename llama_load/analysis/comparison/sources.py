"""From what is named on a command line to sides.

    SIDE = [LABEL=]SOURCE[,SOURCE…]     several sources are repeats of one set-up
    SOURCE = PATH[#STAGE]               PATH may be a pattern (*, ?)

PATH is a run folder, a folder of run folders (repeats), a summary.json, or a result JSON of `vllm
bench serve` or vllm-bench. A run with stages, named alone without LABEL= and #STAGE, is a side for
each. Two sides or more that have stages are compared stage by stage.
"""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from llama_load.analysis.comparison.foreign_results import read_json, result_run
from llama_load.analysis.comparison.run_folder import (
    folder_run,
    folder_summary,
    is_run_folder,
)
from llama_load.analysis.comparison.side import MeasuredRun, Side
from llama_load.analysis.results.budget_of_command import budget_of_command
from llama_load.analysis.results.run_summary import SUMMARY, stage_names
from llama_load.ground.errors import UsageError
from llama_load.outside.foreign_text import printable

MOST_SIDES = 200
MOST_RUNS = 1000
_MOST_ENTRIES = 10_000


@dataclass(frozen=True, slots=True)
class Group:
    """Sides that are compared with each other.

    `title`: the stage that they have in common, empty otherwise.
    """

    title: str
    sides: Sequence[Side]


@dataclass(frozen=True, slots=True)
class _Named:
    """One argument: its label, its paths with their stages, and whether a label was given."""

    label: str
    sources: list[tuple[Path, str]]
    is_labelled: bool


def read_groups(arguments: Sequence[str], *, with_samples: bool = False) -> list[Group]:
    """The sides that these arguments name, in groups.

    `with_samples`: with the values for charts. Raises UsageError, also where they take more than
    the budget of a command.
    """
    named = [_parse(argument) for argument in arguments]
    with budget_of_command():
        return _groups_of(named, with_samples)


def _groups_of(named: Sequence[_Named], with_samples: bool) -> list[Group]:
    common_stages: list[str] = []
    if len(named) > 1:
        common_stages = _common_stages(named)

    _refuse_too_many(len(common_stages))
    groups = []
    for stage in common_stages:
        sides = [_side(argument, with_samples, stage) for argument in named]
        groups.append(Group(f"stage {stage}", _distinct(sides)))

    if groups:
        return groups

    sides = []
    for argument in named:
        sides += _sides(argument, with_samples)
    if not sides:
        raise UsageError(
            "nothing to compare: name runs, such as llama-load compare runs/before runs/after"
        )
    return [Group("", _distinct(sides))]


# ---------------------------------------------------------------------- arguments


def _parse(argument: str) -> _Named:
    label, sign, rest = argument.partition("=")
    if not sign or "/" in label or "#" in label or Path(argument).exists():
        label = ""
        rest = argument

    sources: list[tuple[Path, str]] = []
    for word in _words_or_paths(rest):
        sources += _expanded(word)
    if not sources:
        raise UsageError(f"{argument!r} names nothing; write [LABEL=]PATH[,PATH…]")

    name = label or Path(rest.partition(",")[0]).name or rest
    return _Named(printable(name), sources, is_labelled=bool(label))


def _words_or_paths(text: str) -> list[str]:
    """Separated by commas, unless a path has them."""
    if Path(text.partition("#")[0]).exists():
        return [text]
    return [word for word in text.split(",") if word]


def _expanded(word: str) -> Iterator[tuple[Path, str]]:
    """The paths of a source: itself, the matches of a pattern, or the run folders in a folder.

    Each with the stage that is named.
    """
    text, sign, stage = word.rpartition("#")
    if not sign or Path(word).exists():
        text = word
        stage = ""

    for path in _matches(text):
        if not path.exists():
            raise UsageError(f"there is no {path}; name a run folder or a result JSON")
        runs = _runs_in(path)
        if len(runs) > MOST_RUNS:
            raise UsageError(
                f"{path} contains {len(runs)} runs, over the limit of {MOST_RUNS}: name fewer"
            )
        for run in runs:
            yield run, stage


def _matches(text: str) -> list[Path]:
    """The path, or those that match it as a pattern."""
    path = Path(text)
    if path.exists() or not glob.has_magic(text):
        return [path]
    found = islice(glob.iglob(text), _MOST_ENTRIES)  # noqa: PTH207 (Path.glob takes no absolute pattern)
    paths = sorted(map(Path, found))
    if not paths:
        raise UsageError(f"no path matches {text}")
    return paths


def _runs_in(path: Path) -> list[Path]:
    """The path itself, or the run folders in a folder that is none."""
    if not path.is_dir() or is_run_folder(path) or (path / SUMMARY).is_file():
        return [path]
    entries = islice(path.iterdir(), _MOST_ENTRIES)
    runs = []
    for entry in entries:
        if entry.is_dir() and is_run_folder(entry):
            runs.append(entry)

    if not runs:
        raise UsageError(f"{path} is no run folder and contains none")

    return sorted(runs)


# ---------------------------------------------------------------------- sides


def _sides(named: _Named, with_samples: bool) -> list[Side]:
    """The side of an argument; of a single source with several stages a side for each."""
    if len(named.sources) > 1 or named.is_labelled:
        return [_side(named, with_samples)]

    path, stage = named.sources[0]
    stages = _stages_to_name(path, stage)
    if not stages:
        return [_side(named, with_samples)]

    _refuse_too_many(len(stages))
    sides = []
    for name in stages:
        run = _measured_run(path, name, with_samples)
        sides.append(Side(f"{named.label} {name}", [run]))

    return sides


def _side(named: _Named, with_samples: bool, common_stage: str = "") -> Side:
    runs: list[MeasuredRun] = []
    for path, named_stage in named.sources:
        stage = named_stage or common_stage
        stages = _stages_to_name(path, stage)
        if stages:
            listed = ", ".join(map(printable, stages))
            raise UsageError(
                f"{path} has the stages {listed}: name one, such as '{path}#{stages[0]}'"
            )

        runs.append(_measured_run(path, stage, with_samples))

    label = named.label
    labels_of_runs = {run.label for run in runs}
    if not named.is_labelled and len(labels_of_runs) == 1:
        label = labels_of_runs.pop() or label

    return Side(label, runs)


def _refuse_too_many(sides: int) -> None:
    if sides > MOST_SIDES:
        raise UsageError(f"{sides} sides are too many, the limit is {MOST_SIDES}")


def _distinct(sides: list[Side]) -> list[Side]:
    """The sides with labels that differ: a second one is numbered."""
    _refuse_too_many(len(sides))
    seen: Counter[str] = Counter()
    distinct = []
    for side in sides:
        seen[side.label] += 1
        number = seen[side.label]
        if number > 1:
            side = Side(f"{side.label} ({number})", side.runs)
        distinct.append(side)
    return distinct


def _common_stages(named: Sequence[_Named]) -> list[str]:
    """The stages that every argument's runs have, where no stage is named; empty otherwise."""
    stages_of_sources = []
    for argument in named:
        for path, stage in argument.sources:
            if stage:
                return []
            stages_of_sources.append(_stage_names(path))

    common = stages_of_sources[0]
    for stages in stages_of_sources[1:]:
        those = set(stages)
        common = [stage for stage in common if stage in those]

    return common


def _stages_to_name(path: Path, stage: str) -> list[str]:
    """The stages of a source of which one is to be named; empty where one is, or without any."""
    if stage:
        return []
    return _stage_names(path)


def _measured_run(path: Path, stage: str, with_samples: bool) -> MeasuredRun:
    if path.is_dir():
        return folder_run(path, stage, with_samples=with_samples)
    return result_run(path, stage)


def _stage_names(path: Path) -> list[str]:
    if path.is_dir():
        return stage_names(folder_summary(path))
    return stage_names(read_json(path))
