"""The table with a row per stage, and output tokens/s of all users against those of one user."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from llama_load.analysis.figures.spoiled import RATES, SPOILED_MARK, TPOT, TTFT, named
from llama_load.analysis.figures.stage_figures import StageFigures
from llama_load.analysis.results.results import Results
from llama_load.analysis.statistics.statistics import Distribution
from llama_load.ground.languages import Translate
from llama_load.ground.units import quantity
from llama_load.tables import (
    LEFT,
    Cell,
    Column,
    Row,
    Table,
    columns,
    figure,
    text_lines,
)
from llama_load.tables.numbers import NONE

COLUMNS = (
    Column("Model", LEFT),
    Column("Concurrency", LEFT),
    Column("Duration (s)", lines=("Duration", "(s)")),
    Column("Req/s"),
    Column("Output Tok/s", lines=("Output", "tok/s")),
    Column("Total Tok/s", lines=("Total", "tok/s")),
    Column("Mean TTFT (ms)", lines=("Mean TTFT", "(ms)")),
    Column("Mean TPOT (ms)", lines=("Mean TPOT", "(ms)")),
)
# The latency whose scatter a column has: rates of a closed loop are as uncertain as the mean E2EL
# that they follow from.
_SCATTER = ("e2el", "e2el", "e2el", "e2el", "ttft", "tpot")
# What spoils a column (see `analysis.figures.spoiled`), and which of its values is the best.
_SPOILED = (RATES, RATES, RATES, RATES, TTFT, TPOT)
_BEST = (min, max, max, max, min, min)
_DURATION = 0  # its place among these columns
LEAST_ERRORS = 2.0  # beyond which a difference is not chance in 19 of 20 pairs
FAILED = "†"
BAR_CHARS = 30
MOST_UNLIKE = 0.02  # longer prompts take longer: rows are not ranked if mean lengths differ by more


def stage_name(stage: StageFigures) -> str:
    """The cell under Concurrency: c=8, or the rate in an open loop.

    Marked if the row is not ranked.
    """
    name = stage.name
    if stage.users is not None and name == str(stage.users):
        name = f"c={name}"
    return name if stage.is_comparable else f"{name} {FAILED}"


def stage_table(results: Results, t: Translate) -> Table | None:
    """A row per stage: model, concurrency, and six figures; None without stages.

    The best of a column is marked if its distance to every other value is more than the scatter of
    the requests explains. Only comparable rows count, prompts and answers must have similar mean
    lengths in them, and for the duration equal numbers of requests.
    """
    stages = results.stages
    if not stages:
        return None

    manifest = results.run.manifest
    figures = [_figures_of(stage) for stage in stages]
    best = _best_of_columns(stages, figures)
    rows = []
    for stage, values in zip(stages, figures, strict=True):
        row = [Cell(manifest.model or NONE), Cell(stage_name(stage))]
        for spoiled_by, value, top in zip(_SPOILED, values, best, strict=True):
            row.append(_cell(stage, spoiled_by, value, is_best=value == top))

        rows.append(row)

    heads = [replace(column, name=t(column.name)) for column in COLUMNS]
    prompts = describe_prompts(results.repeated_prompts, same=manifest.same_prompts)
    all_notes = [f"{t('Prompts')}: {prompts}.", *notes(stages)]

    return Table(t("Stages"), heads, rows, all_notes, is_ranked=True)


def _figures_of(stage: StageFigures) -> list[float | None]:
    """The figures of a row, in the order of `COLUMNS` after the first two."""
    figures = stage.figures
    return [
        figures.duration_s,
        figures.request_throughput,
        figures.output_throughput,
        figures.total_token_throughput,
        figures.distributions["ttft"].mean,
        figures.distributions["tpot"].mean,
    ]


def _cell(
    stage: StageFigures, spoiled_by: str, value: float | None, *, is_best: bool
) -> Cell:
    """A figure, marked where a failed check of the stage spoils it alone."""
    cell = figure(value)
    if value is None or not stage.is_comparable:
        return cell
    if stage.is_usable(spoiled_by):
        return replace(cell, is_best=is_best)
    return replace(cell, text=f"{cell.text} {SPOILED_MARK}")


def _best_of_columns(
    stages: Sequence[StageFigures], figures: Sequence[Sequence[float | None]]
) -> list[float | None]:
    """The best figure of each column; None where none may be marked."""
    counts = {stage.figures.completed for stage in stages if stage.is_comparable}
    is_ranked = are_alike(stages)

    best: list[float | None] = []
    for column, choose in enumerate(_BEST):
        known = _known_values(stages, figures, column)
        if (
            len(known) < 2
            or not is_ranked
            or (column == _DURATION and len(counts) != 1)
        ):
            best.append(None)
        else:
            best.append(_if_clear(choose(known), known))

    return best


def _known_values(
    stages: Sequence[StageFigures],
    figures: Sequence[Sequence[float | None]],
    column: int,
) -> list[tuple[float, float]]:
    """The values of a column that may be ranked, with their relative errors."""
    known = []
    for row, stage in zip(figures, stages, strict=True):
        value = row[column]
        is_usable = stage.is_comparable and stage.is_usable(_SPOILED[column])
        if value is not None and is_usable:
            error = _relative_error(stage.figures.distributions[_SCATTER[column]])
            known.append((value, error))

    return known


def _relative_error(sample: Distribution) -> float:
    """The standard error of a mean relative to it, by the scatter of the requests.

    Infinite with a single request.
    """
    if sample.count < 2 or not sample.mean or sample.std is None:
        return math.inf
    return sample.std / math.sqrt(sample.count - 1) / sample.mean


def _if_clear(
    top: tuple[float, float], known: Sequence[tuple[float, float]]
) -> float | None:
    """The best value if it differs clearly from every other one, else None.

    Clearly: by more than `LEAST_ERRORS` standard errors. `top`, `known`: values with their relative
    errors.
    """
    best, best_error = top
    for value, error in known:
        if value == best:
            continue

        standard_error = math.hypot(error * value, best_error * best)
        if not abs(value - best) > LEAST_ERRORS * standard_error:
            return None

    return best


def are_alike(stages: Sequence[StageFigures]) -> bool:
    """Whether prompts and answers are about as long in all comparable stages.

    Their mean lengths differ by at most 2 %.
    """
    lengths = [stage.mean_lengths for stage in stages if stage.is_comparable]
    # of the prompts, then of the answers
    for lengths_of_part in zip(*lengths, strict=True):
        known = [length for length in lengths_of_part if length]
        if known and max(known) > (1 + MOST_UNLIKE) * min(known):
            return False
    return True


def describe_prompts(repeated: int, *, same: bool) -> str:
    """Which prompts the stages used."""
    if same:
        return "the same in every stage, not cached"
    if repeated:
        return f"{repeated} were also sent in an earlier stage"
    return "new ones in every stage"


def notes(stages: Sequence[StageFigures]) -> Iterable[str]:
    """A sentence for each stage whose figures need one; what is true of several is said once."""
    stages_of: dict[tuple[str, str], list[str]] = {}
    for stage in stages:
        for mark, text in _marks(stage):
            stages_of.setdefault((mark, text), []).append(stage.name)
    for (mark, text), names in stages_of.items():
        yield f"{mark}{', '.join(names)}: {text}"

    for stage in stages:
        if stage.unsettled_s > 0:
            yield _unsettled(stage)

    if not are_alike(stages):
        yield "no row is marked as best: mean lengths of prompts or answers differ by over 2 %"


def _marks(stage: StageFigures) -> Iterable[tuple[str, str]]:
    """What a stage's row or figures are marked for: the mark, and why."""
    if reason := _why_not_ranked(stage):
        yield f"{FAILED} ", reason
    else:
        for check in stage.bad:
            names = ", ".join(named(check.spoils, stage.figures.distributions))
            yield f"{SPOILED_MARK} ", f"{names} spoiled: {check.text}"

    if stage.crossing:
        requests = quantity(stage.crossing, "request")
        are = "is" if stage.crossing == 1 else "are"
        what = f"{requests} that ended after the stage {are}"
        yield "", f"{what} left out of its latencies"


def _why_not_ranked(stage: StageFigures) -> str:
    """Empty if it is ranked."""
    figures = stage.figures
    if not stage.is_whole:
        return "the stage did not run to its end"
    if not stage.is_reached:
        return f"at most {stage.peak} requests were in flight"
    if stage.lost:
        return f"{stage.lost} of the workers were lost during the stage"
    if not figures.completed + figures.failed:
        return "no request began and ended in the stage; make it longer"
    if stage.is_comparable:
        return ""

    reasons = []
    missing = _missing_requests(stage)
    if missing:
        reasons.append(missing)

    for check in stage.bad:
        is_said = check.name in ("failure_ratio", "unanswered_ratio") and missing
        if not is_said:
            reasons.append(check.text)

    return "; ".join(reasons)


def _missing_requests(stage: StageFigures) -> str:
    """How many requests of a stage have no answer; empty if none."""
    failed = stage.figures.failed
    if not failed and not stage.dropped and not stage.unsent:
        return ""

    requests = quantity(stage.figures.completed + failed, "request")
    text = f"{failed} of {requests} failed"
    if stage.dropped:
        text += f", {quantity(stage.dropped, 'arrival')} dropped"
    if stage.unsent:
        text += f", {quantity(stage.unsent, 'arrival')} not sent before its end"

    return text


def _unsettled(stage: StageFigures) -> str:
    """The time at its begin that is no part of its rates."""
    if not stage.figures.duration_s > 0:
        return (
            f"{stage.name}: requests of the stage before were in flight for all of its time, "
            "so it has no rates; make it longer"
        )

    return (
        f"{stage.name}: its rates are without its first {stage.unsettled_s:.1f} s, "
        "when requests of the stage before ended"
    )


def stage_lines(table: Table) -> list[str]:
    """The table of the stages for a terminal of 80 columns, without the model."""
    return text_lines(table.without(0), gap=" ")


def speed_table(stages: Sequence[StageFigures], t: Translate) -> Table:
    """Output tokens/s of all users and of one user."""
    heads = columns(
        t("Concurrency"), t("Output tok/s, all users"), t("Output tok/s, one user")
    )
    rows: list[Row] = []
    for stage in stages:
        all_users = figure(stage.figures.output_throughput)
        one_user = figure(stage.figures.tok_per_s_per_user)
        rows.append([stage_name(stage), all_users, one_user])

    return Table("", heads, rows)


def speed_lines(stages: Sequence[StageFigures]) -> Iterable[str]:
    """Output tokens/s of all users and of one user, each as a bar."""
    names: list[str] = []
    of_all: list[float] = []
    of_one: list[float] = []
    for stage in stages:
        all_users = stage.figures.output_throughput
        one_user = stage.figures.tok_per_s_per_user
        if all_users and one_user:
            names.append(stage_name(stage))
            of_all.append(all_users)
            of_one.append(one_user)

    if len(names) < 2:
        return

    most = max(of_all)
    fastest = max(of_one)
    width = max(map(len, names))
    for name, all_users, one_user in zip(names, of_all, of_one, strict=True):
        yield f"{name.ljust(width)} all users {all_users:>10.2f} {_bar(all_users / most)}"
        yield f"{' ' * width} one user  {one_user:>10.2f} {_bar(one_user / fastest)}"


def _bar(share: float) -> str:
    return "█" * max(1, round(share * BAR_CHARS))
