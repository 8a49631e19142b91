"""A whole tuning: stage after stage is a race of runs of Locust.

The result is the command line of the server with the winning settings.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from llama_load.analysis.comparison.reasons import Reason, reasons_against
from llama_load.analysis.comparison.run_folder import folder_run
from llama_load.analysis.comparison.side import MeasuredRun, Side
from llama_load.analysis.results.run_summary import read_summary
from llama_load.ground.errors import LlamaLoadError, RunError, UsageError
from llama_load.ground.units import quantity
from llama_load.ground.version import __version__
from llama_load.lab.sweep.cells import Cell, expand
from llama_load.lab.sweep.folder import (
    DONE,
    RUNS,
    SweepFolder,
    open_folder,
    write_json,
    write_text,
)
from llama_load.lab.sweep.grammar import URL
from llama_load.lab.sweep.measured_subject import subject_of
from llama_load.lab.sweep.plan import Plan, Setting
from llama_load.lab.sweep.runner import CellRunner, Watcher, disturbance_of
from llama_load.lab.sweep.server_spec import spec_of
from llama_load.lab.sweep.sweep_page import page
from llama_load.lab.tune.race import MOST_BLOCKS, NoScore, Raced, race
from llama_load.lab.tune.tune_stages import (
    Stage,
    cells_of,
    check_concurrency,
    names,
    places_of,
    stages_of,
    with_users,
)
from llama_load.outside.command_secrets import redact_words
from llama_load.run_folder.vocabulary.verdict_words import (
    CLIENT_BOUND,
    FAILED,
    INCOMPLETE,
)
from llama_load.servers.kinds import start_of
from llama_load.servers.serving.commands import with_model
from llama_load.tables import (
    LEFT,
    Column,
    Row,
    Table,
    columns,
    document_lines,
    figure,
    titled_lines,
)

JSON = "tune.json"
MARKDOWN = "tune.md"
HTML = "tune.html"
SCORE = "request_goodput"
# Reasons that no repeats resolve: such a setting leaves the race. Other lengths of answers may be
# chance, and count at its end.
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
    drafts: Sequence[DraftRace] = ()


@dataclass(frozen=True, slots=True)
class DraftRace:
    """The race of the settings of drafts with so many users."""

    users: int
    race: StageRace


class _Runner:
    """Runs cells with the machinery of sweeps.

    Those that ended before an interruption are read from their folders.
    """

    def __init__(self, cells: CellRunner, folder: SweepFolder) -> None:
        self._cells = cells
        self._folder = folder
        self.runs = 0
        self._measured: dict[
            int, list[MeasuredRun]
        ] = {}  # by setting, of the stage that is raced

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
        """Why the runs of a setting must not be ranked against those of the default.

        By the rules of `compare`.
        """
        base = self._measured.get(0, [])
        other = self._measured.get(number, [])
        if not base or not other:
            return []
        return reasons_against([Side("the default", base), Side(label, other)])

    def score(self, cell: Cell) -> float:
        """Requests per second that met all objectives. NoScore: the run failed."""
        self.runs += 1
        entry = self._folder.ended.get(cell.key)
        if entry is None:
            entry = self._cells.run(cell)
            why = disturbance_of(self._folder, cell)
            if why:
                entry = self._cells.run_again(cell, why) or entry
        if entry.status != DONE:
            raise NoScore(entry.reason)

        summary = read_summary(self._folder.run_of(cell), MOST_SUMMARY_BYTES)
        score = summary.numbers(SCORE).get(SCORE)
        if score is None or INCOMPLETE in summary.words or FAILED in summary.words:
            raise NoScore(summary.headline, may_pass=CLIENT_BOUND in summary.words)
        return score


def tune(
    plan: Plan,
    text: bytes,
    goodput: str,
    out: Path,
    watcher: Watcher,
    *,
    concurrencies: Sequence[int] = (),
) -> Tuned:
    """Race the stages, that of drafts once more with each of these numbers of users.

    UsageError: the plan cannot be tuned. RunError: no run can be judged, or met the
    objectives.
    """
    stages = stages_of(plan)
    if plan.servers[0].kind == URL:
        raise UsageError(
            "tune starts the server with each setting; "
            "give its command in the plan instead of a URL"
        )
    if concurrencies:
        check_concurrency(plan, stages)
    flags = plan.flags | {"goodput": [goodput], "no-report-html": [True]}
    plan = replace(plan, flags=flags, perplexity=None)

    chosen: dict[str, int] = {}
    races = []
    with (
        closing(open_folder(out, expand(plan), text, __version__)) as folder,
        closing(CellRunner(plan, folder, watcher)) as cells,
    ):
        runner = _Runner(cells, folder)
        for number, stage in enumerate(stages):
            stage_race = _race(plan, stage, chosen, runner, number)
            if not any(stage_race.raced.scores):
                what = _without_scores(stage_race, f"met the objectives {goodput}")
                raise RunError(
                    f"no run of the stage {stage.name} {what}; see the runs in {out}"
                )
            chosen |= places_of(stage, stage_race.raced.winner)
            races.append(stage_race)
        drafts = []
        for number, users in enumerate(concurrencies, start=len(stages)):
            crowd = with_users(plan, users)
            draft_race = _race(crowd, stages[-1], chosen, runner, number)
            drafts.append(DraftRace(users, draft_race))

    last_winner = races[-1].raced.winner
    best = cells_of(plan, stages[-1], chosen, 0)[last_winner]
    spec = with_model(spec_of(best.server))
    command = start_of(spec).command(spec, PORT)

    varied: list[Setting] = []
    for stage in stages:
        varied += stage.settings
    return Tuned(
        races,
        names(varied, chosen),
        shlex.join(redact_words(command)),
        runner.runs,
        drafts,
    )


def _race(
    plan: Plan, stage: Stage, chosen: dict[str, int], runner: _Runner, number: int
) -> StageRace:
    """The race of a stage, which is number `number`.

    It has blocks of its own: a run of an earlier stage, though with the same settings, is not
    paired with later ones. A winner that `compare` would not rank against the default does not win.
    """
    count = len(cells_of(plan, stage, chosen, 0))
    first_block = number * MOST_BLOCKS
    labels = []
    for place in range(count):
        labels.append(names(stage.settings, places_of(stage, place)))

    runner.begin_stage()

    def run(place: int, block: int) -> float:
        cell = cells_of(plan, stage, chosen, first_block + block)[place]
        score = runner.score(cell)
        runner.keep(place, cell)
        return score

    def other_prompts(place: int) -> str:
        reasons = runner.reasons_against_default(place, labels[place])
        return next(
            (reason.text for reason in reasons if reason.kind in OTHER_PROMPTS), ""
        )

    raced = race(count, run, plan.seed + number, other_prompts)

    doubt = ""
    if raced.winner:
        reasons = runner.reasons_against_default(raced.winner, labels[raced.winner])
        doubt = next((reason.text for reason in reasons if not reason.latency), "")
    if doubt and raced.scores[0]:
        raced = replace(raced, winner=0, is_real=False, gain=None)
    return StageRace(stage, raced, labels, doubt)


def sentence(race: StageRace) -> str:
    """What a stage found, without a full stop."""
    raced = race.raced
    stage = race.stage.name
    label = race.labels[raced.winner]
    blocks = quantity(raced.blocks, "block")

    if race.doubt:
        return (
            f"{stage}: {label} ({blocks}); "
            f"the best is not ranked against the default: {race.doubt}"
        )
    if raced.winner == 0 and raced.worse == set(range(1, len(race.labels))):
        return f"{stage}: the default is the best, {label} ({blocks})"
    if raced.winner == 0 and 0 not in raced.dropped:
        return f"{stage}: no difference to the default was proven, {label} ({blocks})"
    if raced.gain is None:
        return (
            f"{stage}: {label} ({blocks}; too few runs of the default to compare with)"
        )

    gain, low, high = (f"{100 * part:+.1f} %" for part in raced.gain)
    return f"{stage}: {label}, {gain} goodput against the default (95 %: {low} to {high}; {blocks})"


def _without_scores(race: StageRace, objectives: str) -> str:
    """What no run of a race without scores did, after `no run`."""
    failures = [*race.raced.failures.values()]
    if failures:
        return f"can be judged: {failures[-1]}"
    return objectives


def failure_sentences(race: StageRace) -> list[str]:
    """What the runs without a score said that cost a setting its place."""
    sentences = []
    for number, said in race.raced.failures.items():
        sentences.append(f"{race.labels[number]}: a run has no score: {said}")
    return sentences


def table_of(race: StageRace) -> Table:
    """A row for each combination."""
    rows: list[Row] = []
    for number, scores in enumerate(race.raced.scores):
        mean = figure(sum(scores) / len(scores) if scores else None, 3)
        mean = replace(mean, is_best=number == race.raced.winner)
        outcome = "default" if number == 0 else ""
        outcome = race.raced.dropped.get(number, outcome)
        rows.append([race.labels[number], str(len(scores)), mean, outcome])

    heads = [*columns("setting", "runs", "goodput (req/s)"), Column("", LEFT)]
    return Table(f"Stage {race.stage.name}", heads, rows, style="padded")


def drafts_table(drafts: Sequence[DraftRace]) -> Table:
    """The best settings of drafts by the number of users: a row for each."""
    rows: list[Row] = []
    for draft in drafts:
        raced = draft.race.raced
        if not any(raced.scores):
            what = _without_scores(draft.race, "met the objectives")
            rows.append([str(draft.users), f"no run {what}", "", ""])
            continue
        scores = raced.scores[raced.winner]
        mean = figure(sum(scores) / len(scores) if scores else None, 3)
        gain = ""
        if raced.gain is not None and raced.winner:
            gain = "{:+.1f} % ({:+.1f} to {:+.1f})".format(
                *(100 * part for part in raced.gain)
            )
        rows.append([str(draft.users), draft.race.labels[raced.winner], mean, gain])
    heads = [
        Column("users"),
        Column("best drafts", LEFT),
        Column("goodput (req/s)"),
        Column("against the default (95 %)"),
    ]
    return Table("Drafts by concurrency", heads, rows, style="padded")


def write_tuned(tuned: Tuned, folder: Path, title: str) -> list[str]:
    """Write tune.json, tune.md and tune.html.

    The lines for a terminal are returned, the command line first.
    """
    sentences = []
    for stage_race in tuned.races:
        sentences += [sentence(stage_race), *failure_sentences(stage_race)]
    tables = [table_of(race) for race in tuned.races]
    if tuned.drafts:
        tables.append(drafts_table(tuned.drafts))
    sections = [("Outcome", [tuned.chosen, tuned.command, *sentences])]

    write_json(folder / JSON, _document(tuned))
    write_text(folder / MARKDOWN, "\n".join(document_lines(title, tables, sections)))
    subtitle = f"{tuned.command} ({quantity(tuned.runs, 'run')})"
    subject = subject_of(folder / RUNS)
    html = page(title, subtitle, tables, sections, subject=subject)
    write_text(folder / HTML, html)

    lines = [tuned.command, "", *sentences]
    for table in tables:
        lines += ["", *titled_lines(table)]
    return lines


def _document(tuned: Tuned) -> dict[str, object]:
    """The contents of tune.json."""
    return {
        "version": __version__,
        "chosen": tuned.chosen,
        "command": tuned.command,
        "runs": tuned.runs,
        "stages": [_stage_document(race) for race in tuned.races],
        "drafts_by_concurrency": [_draft_document(draft) for draft in tuned.drafts],
    }


def _draft_document(draft: DraftRace) -> dict[str, object]:
    race = draft.race if any(draft.race.raced.scores) else None
    return {"users": draft.users, "race": race and _stage_document(race)}


def _stage_document(race: StageRace) -> dict[str, object]:
    raced = race.raced
    settings = []
    for number, scores in enumerate(raced.scores):
        setting = {
            "setting": race.labels[number],
            "goodput": scores,
            "dropped": raced.dropped.get(number),
            "failure": raced.failures.get(number),
        }
        settings.append(setting)

    return {
        "stage": race.stage.name,
        "sentence": sentence(race),
        "winner": race.labels[raced.winner],
        "is_real": raced.is_real,
        "gain": raced.gain,
        "blocks": raced.blocks,
        "not_ranked": race.doubt,
        "settings": settings,
    }
