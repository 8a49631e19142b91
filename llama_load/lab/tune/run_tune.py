"""A whole tuning: the stages one after the other, each a race of runs of Locust, and the winning command line."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from llama_load.analysis.run_summary import read_summary
from llama_load.command_secrets import redact_words
from llama_load.comparison.reasons import Reason, reasons_against
from llama_load.comparison.run_folder import folder_run
from llama_load.comparison.side import MeasuredRun, Side
from llama_load.errors import LlamaLoadError, RunError, UsageError
from llama_load.lab.sweep.cells import Cell, expand
from llama_load.lab.sweep.folder import DONE, SweepFolder, open_folder, write_json, write_text
from llama_load.lab.sweep.grammar import URL
from llama_load.lab.sweep.plan import Plan
from llama_load.lab.sweep.runner import CellRunner, Watcher
from llama_load.lab.sweep.server_spec import spec_of
from llama_load.lab.sweep.sweep_page import page
from llama_load.lab.tune.race import MOST_BLOCKS, Raced, race
from llama_load.lab.tune.tune_stages import Stage, cells_of, names, places_of, stages_of
from llama_load.metrics.verdict_words import FAILED, INCOMPLETE
from llama_load.serving.commands import with_model
from llama_load.tables import LEFT, Column, Row, Table, columns, document_lines, figure, titled_lines
from llama_load.targets.servers import start_of
from llama_load.units import quantity
from llama_load.version import __version__

JSON, MARKDOWN, HTML = "tune.json", "tune.md", "tune.html"
SCORE = "request_goodput"
# Reasons that no repeats resolve: such a setting leaves the race. Other lengths of answers may be chance, and count at its end.
OTHER_PROMPTS = ("different prompts", "lengths of prompts", "cached prompts")
PORT = 8080  # of the command line that is printed
MOST_SUMMARY_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class StageRace:
    """A stage and its outcome; `labels` by the number of the combination."""

    stage: Stage
    raced: Raced
    labels: Sequence[str]
    doubt: str = ""  # why the winner must not be ranked against the default


@dataclass(frozen=True, slots=True)
class Tuned:
    """What was found: the races, the winning values, the server's command line with them."""

    races: Sequence[StageRace]
    chosen: str
    command: str
    runs: int


class _Runner:
    """Runs cells with the machinery of sweeps; those that ended before an interruption are read from their folders."""

    def __init__(self, cells: CellRunner, folder: SweepFolder) -> None:
        self._cells, self._folder = cells, folder
        self.runs = 0
        self._measured: dict[int, list[MeasuredRun]] = {}  # by setting, of the stage that is raced

    def begin_stage(self) -> None:
        """Forget the runs of the stage before."""
        self._measured = {}

    def keep(self, number: int, cell: Cell) -> None:
        """Note the run of a setting, for `reasons_against_default`."""
        try:
            run = folder_run(self._folder.run_of(cell))
        except LlamaLoadError:
            return
        self._measured.setdefault(number, []).append(run)

    def reasons_against_default(self, number: int, label: str) -> list[Reason]:
        """Why the runs of a setting must not be ranked against those of the default, as `compare` would say."""
        base, other = self._measured.get(0, []), self._measured.get(number, [])
        return reasons_against([Side("the default", base), Side(label, other)]) if base and other else []

    def score(self, cell: Cell) -> float | None:
        """Requests per second that met all objectives; None if the run failed."""
        self.runs += 1
        entry = self._folder.ended.get(cell.key)
        if entry is None:
            entry = self._cells.run(cell)
        if entry.status != DONE:
            return None
        summary = read_summary(self._folder.run_of(cell), MOST_SUMMARY_BYTES)
        return None if {INCOMPLETE, FAILED} & set(summary.words) else summary.numbers(SCORE).get(SCORE)


def tune(plan: Plan, text: bytes, goodput: str, out: Path, watcher: Watcher) -> Tuned:
    """Race the stages. UsageError: the plan cannot be tuned. RunError: no run met the objectives."""
    stages = stages_of(plan)
    if plan.servers[0].kind == URL:
        raise UsageError("tune starts the server with each setting; give its command in the plan instead of a URL")
    plan = replace(plan, flags=plan.flags | {"goodput": [goodput], "no-report-html": [True]}, perplexity=None)
    chosen: dict[str, int] = {}
    races = []
    with closing(open_folder(out, expand(plan), text, __version__)) as folder, closing(CellRunner(plan, folder, watcher)) as cells:
        runner = _Runner(cells, folder)
        for number, stage in enumerate(stages):
            raced = _race(plan, stage, chosen, runner, number)
            if not any(raced.raced.scores):
                raise RunError(f"no run of the stage {stage.name} met the objectives {goodput}; see the runs in {out}")
            chosen |= places_of(stage, raced.raced.winner)
            races.append(raced)
    best = cells_of(plan, stages[-1], chosen, 0)[races[-1].raced.winner]
    spec = with_model(spec_of(best.server))
    command = shlex.join(redact_words(start_of(spec).command(spec, PORT)))
    varied = [setting for stage in stages for setting in stage.settings]
    return Tuned(races, names(varied, chosen), command, runner.runs)


def _race(plan: Plan, stage: Stage, chosen: dict[str, int], runner: _Runner, number: int) -> StageRace:
    """The race of a stage, which is number `number`. It has separate blocks: a run of an earlier stage, though with the same
    settings, is not paired with later ones. A winner that `compare` would not rank against the default does not win."""
    count, first = len(cells_of(plan, stage, chosen, 0)), number * MOST_BLOCKS
    labels = [names(stage.settings, places_of(stage, place)) for place in range(count)]
    runner.begin_stage()

    def run(place: int, block: int) -> float | None:
        cell = cells_of(plan, stage, chosen, first + block)[place]
        score = runner.score(cell)
        if score is not None:
            runner.keep(place, cell)
        return score

    def other_prompts(place: int) -> str:
        reasons = runner.reasons_against_default(place, labels[place])
        return next((reason.text for reason in reasons if reason.kind in OTHER_PROMPTS), "")

    raced = race(count, run, plan.seed + number, other_prompts)
    reasons = runner.reasons_against_default(raced.winner, labels[raced.winner]) if raced.winner else []
    doubt = next((reason.text for reason in reasons if not reason.latency), "")
    if doubt and raced.scores[0]:
        raced = replace(raced, winner=0, is_real=False, gain=None)
    return StageRace(stage, raced, labels, doubt)


def sentence(race: StageRace) -> str:
    """What a stage found, without a full stop."""
    raced, label = race.raced, race.labels[race.raced.winner]
    blocks = quantity(raced.blocks, "block")
    if race.doubt:
        return f"{race.stage.name}: {label} ({blocks}); the best is not ranked against the default: {race.doubt}"
    if not raced.winner and len(raced.dropped) == len(race.labels) - 1:
        return f"{race.stage.name}: the default is the best, {label} ({blocks})"
    if not raced.winner and 0 not in raced.dropped:
        return f"{race.stage.name}: no difference to the default was proven, {label} ({blocks})"
    if raced.gain is None:
        return f"{race.stage.name}: {label} ({blocks}; the default did not run)"
    gain, low, high = (f"{100 * part:+.1f} %" for part in raced.gain)
    return f"{race.stage.name}: {label}, {gain} goodput against the default (95 %: {low} to {high}; {blocks})"


def table_of(race: StageRace) -> Table:
    """A row for each combination."""
    rows: list[Row] = []
    for number, (label, scores) in enumerate(zip(race.labels, race.raced.scores, strict=True)):
        mean = figure(sum(scores) / len(scores) if scores else None, 3)
        outcome = race.raced.dropped.get(number, "default" if number == 0 else "")
        rows.append([label, str(len(scores)), replace(mean, is_best=number == race.raced.winner), outcome])
    heads = [*columns("setting", "runs", "goodput (req/s)"), Column("", LEFT)]
    return Table(f"Stage {race.stage.name}", heads, rows, style="padded")


def write_tuned(tuned: Tuned, folder: Path, title: str) -> list[str]:
    """Write tune.json, tune.md and tune.html; the lines for a terminal are returned, the command line first."""
    sentences = [sentence(race) for race in tuned.races]
    tables = [table_of(race) for race in tuned.races]
    document = {
        "version": __version__,
        "chosen": tuned.chosen,
        "command": tuned.command,
        "runs": tuned.runs,
        "stages": [
            {
                "stage": race.stage.name,
                "sentence": text,
                "winner": race.labels[race.raced.winner],
                "is_real": race.raced.is_real,
                "gain": race.raced.gain,
                "blocks": race.raced.blocks,
                "not_ranked": race.doubt,
                "settings": [
                    {"setting": label, "goodput": scores, "dropped": race.raced.dropped.get(number)}
                    for number, (label, scores) in enumerate(zip(race.labels, race.raced.scores, strict=True))
                ],
            }
            for race, text in zip(tuned.races, sentences, strict=True)
        ],
    }
    write_json(folder / JSON, document)
    sections = [("Outcome", [tuned.chosen, tuned.command, *sentences])]
    write_text(folder / MARKDOWN, "\n".join(document_lines(title, tables, sections)))
    write_text(folder / HTML, page(title, f"{tuned.command} ({quantity(tuned.runs, 'run')})", tables, sections))
    return [tuned.command, "", *sentences, *(line for table in tables for line in ["", *titled_lines(table)])]
