"""From what is named on a command line to sides.

    SIDE = [LABEL=]SOURCE[,SOURCE…]     several sources are repeats of one set-up
    SOURCE = PATH[#STAGE]               PATH may be a pattern (*, ?)

PATH is a run folder, a folder of run folders (repeats), a summary.json, or a result JSON of `vllm bench serve` or vllm-bench. A run
with stages, named alone without LABEL= and #STAGE, is a side for each. Two sides or more that have stages are compared stage by
stage.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from llama_load.analysis.run_summary import SUMMARY
from llama_load.comparison.foreign_results import read_json, result_run, stages_in
from llama_load.comparison.run_folder import folder_run, folder_summary, is_run_folder
from llama_load.comparison.side import MeasuredRun, Side
from llama_load.errors import UsageError
from llama_load.foreign_text import printable

MOST_SIDES, MOST_RUNS = 200, 1000
_MOST_ENTRIES = 10_000


@dataclass(frozen=True, slots=True)
class Group:
    """Sides that are compared with each other. `title`: the stage that they have in common, empty otherwise."""

    title: str
    sides: Sequence[Side]


@dataclass(frozen=True, slots=True)
class _Named:
    """One argument: its label, its paths with their stages, and whether a label was given."""

    label: str
    sources: list[tuple[Path, str]]
    is_labelled: bool


def read_groups(arguments: Sequence[str], *, with_samples: bool = False) -> list[Group]:
    """The sides that these arguments name, in groups. `with_samples`: with the values for charts. Raises UsageError."""
    named = [_parse(argument) for argument in arguments]
    if len(named) > 1 and (stages := _common_stages(named)):
        return [
            Group(f"stage {stage}", _distinct([_side(named_side, with_samples, stage) for named_side in named])) for stage in stages
        ]
    sides = [side for named_side in named for side in _sides(named_side, with_samples)]
    if not sides:
        raise UsageError("nothing to compare: name runs, such as llama-load compare runs/before runs/after")
    return [Group("", _distinct(sides))]


# ---------------------------------------------------------------------- arguments


def _parse(argument: str) -> _Named:
    label, sign, rest = argument.partition("=")
    if not sign or "/" in label or "#" in label or Path(argument).exists():
        label, rest = "", argument
    sources = [source for word in _words(rest) for source in _expanded(word)]
    if not sources:
        raise UsageError(f"{argument!r} names nothing; write [LABEL=]PATH[,PATH…]")
    return _Named(printable(label or Path(rest.partition(",")[0]).name or rest), sources, is_labelled=bool(label))


def _words(text: str) -> list[str]:
    """Separated by commas, unless a path has them."""
    return [text] if Path(text.partition("#")[0]).exists() else [word for word in text.split(",") if word]


def _expanded(word: str) -> Iterator[tuple[Path, str]]:
    """The paths of a source: itself, the matches of a pattern, or the run folders in a folder."""
    text, sign, part = (word, "", "") if Path(word).exists() else word.rpartition("#")
    if not sign:
        text, part = word, ""
    path = Path(text)
    if not path.exists() and glob.has_magic(text):
        paths = sorted(map(Path, islice(glob.iglob(text), _MOST_ENTRIES)))  # noqa: PTH207 (Path.glob takes no absolute pattern)
        if not paths:
            raise UsageError(f"no path matches {text}")
    else:
        paths = [path]
    for path in paths:
        if not path.exists():
            raise UsageError(f"there is no {path}; name a run folder or a result JSON")
        runs = [path]
        if path.is_dir() and not is_run_folder(path) and not (path / SUMMARY).is_file():
            runs = sorted(child for child in islice(path.iterdir(), _MOST_ENTRIES) if child.is_dir() and is_run_folder(child))
            if not runs:
                raise UsageError(f"{path} is no run folder and contains none")
        if len(runs) > MOST_RUNS:
            raise UsageError(f"{path} contains {len(runs)} runs, over the limit of {MOST_RUNS}: name fewer")
        yield from ((run, part) for run in runs)


# ---------------------------------------------------------------------- sides


def _sides(named: _Named, with_samples: bool) -> list[Side]:
    """The side of an argument; of a single source with several stages a side for each."""
    if len(named.sources) == 1 and not named.is_labelled:
        path, stage = named.sources[0]
        if not stage and (stages := _stages(path)):
            return [Side(f"{named.label} {stage}", [_run(path, stage, with_samples)]) for stage in stages]
    return [_side(named, with_samples)]


def _side(named: _Named, with_samples: bool, common_stage: str = "") -> Side:
    runs: list[MeasuredRun] = []
    for path, part in named.sources:
        stage = part or common_stage
        if not stage and (stages := _stages(path)):
            raise UsageError(f"{path} has the stages {', '.join(map(printable, stages))}: name one, such as '{path}#{stages[0]}'")
        runs.append(_run(path, stage, with_samples))
    own = {run.label for run in runs}
    is_alone = not named.is_labelled and len(own) == 1
    return Side(own.pop() or named.label if is_alone else named.label, runs)


def _distinct(sides: list[Side]) -> list[Side]:
    """The sides with labels that differ: a second one is numbered."""
    if len(sides) > MOST_SIDES:
        raise UsageError(f"{len(sides)} sides are too many, the limit is {MOST_SIDES}")
    seen: dict[str, int] = {}
    distinct = []
    for side in sides:
        seen[side.label] = seen.get(side.label, 0) + 1
        number = seen[side.label]
        distinct.append(side if number == 1 else Side(f"{side.label} ({number})", side.runs))
    return distinct


def _common_stages(named: Sequence[_Named]) -> list[str]:
    """The stages that every argument's runs have, where no stage is named; empty otherwise."""
    sources = [source for named_side in named for source in named_side.sources]
    if any(stage for _, stage in sources):
        return []
    first, *others = [_stages(path) for path, _ in sources]
    return [stage for stage in first if all(stage in stages for stages in others)]


def _run(path: Path, stage: str, with_samples: bool) -> MeasuredRun:
    return folder_run(path, stage, with_samples=with_samples) if path.is_dir() else result_run(path, stage)


def _stages(path: Path) -> list[str]:
    return stages_in(folder_summary(path) if path.is_dir() else read_json(path))
