"""From what is named on a command line to sides.

    SIDE = [LABEL=]SOURCE[,SOURCE…]     several sources are repeats of one set-up
    SOURCE = PATH[#PART]                PATH may be a pattern (*, ?); #PART: a stage, or a block by number or words of its heading

PATH is a run folder, a folder of run folders (repeats), a summary.json, a result JSON of `vllm bench serve` or vllm-bench, or any
text with their printed blocks. A text with several blocks, and a run with stages, named alone without LABEL= and #PART, is a side
for each. Two sides or more that have stages are compared stage by stage.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from llama_load.analysis.run_summary import SUMMARY
from llama_load.comparison.compared_figures import read_json
from llama_load.comparison.foreign_results import result_run, stages_in
from llama_load.comparison.llama_bench import BenchRow, bench_rows
from llama_load.comparison.printed import printed_runs
from llama_load.comparison.run_folder import folder_run, folder_summary, is_run_folder
from llama_load.comparison.side import MeasuredRun, Side
from llama_load.errors import UsageError
from llama_load.foreign_text import printable

MOST_TEXT_BYTES = 16 * 1024 * 1024
MOST_SIDES, MOST_RUNS = 200, 1000
_MOST_ENTRIES = 10_000
_JSON_HEADS = (b"{", b"\xef\xbb\xbf{")


@dataclass(frozen=True, slots=True)
class Group:
    """Sides that are compared with each other. `title`: the stage that they have in common, empty otherwise."""

    title: str
    sides: Sequence[Side]


@dataclass(frozen=True, slots=True)
class _Named:
    """One argument: its label, its paths with their parts, and whether a label was given."""

    label: str
    sources: list[tuple[Path, str]]
    is_labelled: bool


def read_groups(arguments: Sequence[str], *, with_samples: bool = False) -> tuple[list[Group], list[BenchRow]]:
    """The sides that these arguments name, in groups, and the rows of llama-bench in the texts among them. `with_samples`: with the
    values for charts. Raises UsageError."""
    named = [_parse(argument) for argument in arguments]
    bench = [row for named_side in named for path, _ in named_side.sources for row in _bench(path)]
    if len(named) > 1 and (stages := _common_stages(named)):
        groups = [
            Group(f"stage {stage}", _distinct([_side(named_side, with_samples, stage) for named_side in named])) for stage in stages
        ]
    else:
        groups = [Group("", _distinct([side for named_side in named for side in _sides(named_side, with_samples)]))]
    if not groups[0].sides:
        raise UsageError("nothing to compare: name runs, such as llama-load compare runs/before runs/after")
    return groups, bench


# ---------------------------------------------------------------------- arguments


def _parse(argument: str) -> _Named:
    label, sign, rest = argument.partition("=")
    if not sign or "/" in label or "#" in label or Path(argument).exists():
        label, rest = "", argument
    sources = [source for word in _words(rest) for source in _expanded(word)]
    if not sources:
        raise UsageError(f"{argument!r} names nothing; write [LABEL=]PATH[,PATH…]")
    return _Named(printable(label or _plain_name(rest)), sources, is_labelled=bool(label))


def _words(text: str) -> list[str]:
    """Separated by commas, unless a path has them."""
    return [text] if Path(text.partition("#")[0]).exists() else [word for word in text.split(",") if word]


def _plain_name(text: str) -> str:
    """A label for sources without one: the name of the path, or the common folder of several."""
    first = text.partition(",")[0]
    name = first.rstrip("/").rsplit("/", 1)[-1]
    return name or first


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
            raise UsageError(f"there is no {path}; name a run folder, a result JSON, or a text with printed results")
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
    """The side of an argument; of a single source with several parts a side for each."""
    if len(named.sources) == 1 and not named.is_labelled:
        path, part = named.sources[0]
        if not part and (stages := _stages(path)):
            return [Side(f"{named.label} {stage}", [_run(path, stage, with_samples)]) for stage in stages]
        if _is_text(path) and len(runs := _blocks(path, part)) > 1:
            return [Side(run.label, [run]) for run in runs[:MOST_SIDES]]
    return [_side(named, with_samples)]


def _side(named: _Named, with_samples: bool, stage: str = "") -> Side:
    runs: list[MeasuredRun] = []
    for path, part in named.sources:
        if _is_text(path):
            runs += _blocks(path, part)
        elif not part and not stage and (stages := _stages(path)):
            raise UsageError(f"{path} has the stages {', '.join(map(printable, stages))}: name one, such as '{path}#{stages[0]}'")
        else:
            runs.append(_run(path, part or stage, with_samples))
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
        distinct.append(side if number == 1 else Side(f"{side.label} ({number})", side.runs, side.note))
    return distinct


def _common_stages(named: Sequence[_Named]) -> list[str]:
    """The stages that every argument's runs have, where no part is named; empty otherwise."""
    stages_of_sides: list[list[str]] = []
    for named_side in named:
        for path, part in named_side.sources:
            if part or _is_text(path):
                return []
            stages_of_sides.append(_stages(path))
    return [stage for stage in stages_of_sides[0] if all(stage in stages for stages in stages_of_sides)] if stages_of_sides else []


def _run(path: Path, part: str, with_samples: bool) -> MeasuredRun:
    return folder_run(path, part, with_samples=with_samples) if path.is_dir() else result_run(path, part)


def _stages(path: Path) -> list[str]:
    if _is_text(path):
        return []
    return stages_in(folder_summary(path) if path.is_dir() else read_json(path))


# ---------------------------------------------------------------------- texts


def _is_text(path: Path) -> bool:
    """Whether it is a text with printed results: a file that holds no JSON object."""
    if path.is_dir() or not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return not file.read(4096).lstrip().startswith(_JSON_HEADS)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MOST_TEXT_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > MOST_TEXT_BYTES:
        raise UsageError(f"{path} is over the limit of {MOST_TEXT_BYTES >> 20} MiB for texts with printed results")
    return data.decode("utf-8", "replace")


def _blocks(path: Path, part: str) -> list[MeasuredRun]:
    """The runs of a text; `part`: the block of this number, or those whose headings contain it."""
    runs = printed_runs(_text(path), path.name)
    if not runs:
        raise UsageError(f"{path} has no printed result of vllm bench serve, and is neither a run folder nor a result JSON")
    if not part:
        return runs
    if part.isdigit() and 1 <= int(part) <= len(runs):
        return [runs[int(part) - 1]]
    matching = [run for run in runs if part.lower() in run.label.lower()]
    if not matching:
        raise UsageError(f"{path} has no block {part!r}; it has {', '.join(run.label for run in runs[:20])}")
    return matching


def bench_in(file: Path) -> list[BenchRow]:
    """The rows of llama-bench in a text. Raises UsageError where it has none."""
    rows = bench_rows(_text(file))
    if not rows:
        raise UsageError(f"{file} has no table of llama-bench; save what 'llama-bench -m MODEL.gguf' prints")
    return rows


def _bench(path: Path) -> list[BenchRow]:
    return bench_rows(_text(path)) if _is_text(path) else []
