"""The table with a row per stage, and output tokens/s of all users against those of one user."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from llama_load.analysis.results import Results
from llama_load.metrics.spoiled import RATES, SPOILED_MARK, TPOT, TTFT, named
from llama_load.metrics.stage_figures import StageFigures
from llama_load.metrics.statistics import Distribution
from llama_load.reports.translations import Translate
from llama_load.tables import LEFT, Cell, Column, Table, columns, figure, text_lines
from llama_load.tables.numbers import NONE
from llama_load.units import quantity

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
# The latency whose scatter a column has: rates of a closed loop are as uncertain as the mean E2EL that they follow from.
_SCATTER = ("e2el", "e2el", "e2el", "e2el", "ttft", "tpot")
# What spoils a column (see `metrics.spoiled`).
_SPOILED = (RATES, RATES, RATES, RATES, TTFT, TPOT)
LEAST_ERRORS = 2.0  # beyond which a difference is not chance in 19 of 20 pairs
FAILED = "†"
BAR_CHARS = 30
MOST_UNLIKE = 0.02  # longer prompts take longer: rows are not ranked if mean lengths differ by more


def stage_name(stage: StageFigures) -> str:
    """The cell under Concurrency: c=8, or the rate in an open loop; marked if the row is not ranked."""
    plain = stage.users is not None and stage.name == str(stage.users)
    return (f"c={stage.name}" if plain else stage.name) + ("" if stage.is_comparable else f" {FAILED}")


def stage_table(results: Results, t: Translate) -> Table | None:
    """A row per stage: model, concurrency, and six figures; None without stages.

    The best of a column is marked if its distance to every other value is more than the scatter of the requests explains. Only
    comparable rows count, prompts and answers must have similar mean lengths in them, and for the duration equal numbers of
    requests."""
    if not (stages := results.stages):
        return None
    names = ("duration_s", "request_throughput", "output_throughput", "total_token_throughput")
    figures = [
        [
            *(getattr(stage.figures, name) for name in names),
            stage.figures.distributions["ttft"].mean,
            stage.figures.distributions["tpot"].mean,
        ]
        for stage in stages
    ]
    best = _best(stages, figures)
    rows = [
        [
            Cell(results.run.manifest.model or NONE),
            Cell(stage_name(stage)),
            *(_cell(stage, name, value, is_best=value == top) for name, value, top in zip(_SPOILED, row, best, strict=True)),
        ]
        for row, stage in zip(figures, stages, strict=True)
    ]
    heads = [replace(column, name=t(column.name)) for column in COLUMNS]
    prompts = describe_prompts(results.repeated_prompts, same=results.run.manifest.same_prompts)
    return Table(t("Stages"), heads, rows, [f"{t('Prompts')}: {prompts}.", *notes(stages)], is_ranked=True)


def _cell(stage: StageFigures, name: str, value: float | None, *, is_best: bool) -> Cell:
    """A figure, marked where a failed check of the stage spoils it alone."""
    cell = figure(value)
    if value is None or not stage.is_comparable:
        return cell
    return replace(cell, is_best=is_best) if stage.is_usable(name) else replace(cell, text=f"{cell.text} {SPOILED_MARK}")


def _best(stages: Sequence[StageFigures], figures: Sequence[Sequence[float | None]]) -> list[float | None]:
    """The best figure of each column; None where none may be marked."""
    same_count = len({stage.figures.completed for stage in stages if stage.is_comparable}) == 1
    alike = are_alike(stages)
    best: list[float | None] = []
    for column, choose in enumerate((min, max, max, max, min, min)):
        known = [
            (value, _relative_error(stage.figures.distributions[_SCATTER[column]]))
            for row, stage in zip(figures, stages, strict=True)
            if stage.is_comparable and stage.is_usable(_SPOILED[column]) and (value := row[column]) is not None
        ]
        ranked = len(known) > 1 and (column > 0 or same_count) and alike
        best.append(_if_clear(choose(known), known) if ranked else None)
    return best


def _relative_error(sample: Distribution) -> float:
    """The standard error of a mean relative to it, by the scatter of the requests; infinite with a single one."""
    if sample.count < 2 or not sample.mean or sample.std is None:
        return math.inf
    return sample.std / math.sqrt(sample.count - 1) / sample.mean


def _if_clear(top: tuple[float, float], known: Sequence[tuple[float, float]]) -> float | None:
    """The best value, if it differs from every other one by more than `LEAST_ERRORS` standard errors, else None. `top`, `known`:
    values with their relative errors."""
    best, best_error = top
    is_clear = all(
        abs(value - best) > LEAST_ERRORS * math.hypot(error * value, best_error * best) for value, error in known if value != best
    )
    return best if is_clear else None


def are_alike(stages: Sequence[StageFigures]) -> bool:
    """Whether the mean lengths of prompts and answers differ by at most 2 % between the comparable stages."""
    lengths = [stage.mean_lengths for stage in stages if stage.is_comparable]
    for lengths_of_part in zip(*lengths, strict=True):  # of the prompts, then of the answers
        known = [length for length in lengths_of_part if length]
        if known and max(known) > (1 + MOST_UNLIKE) * min(known):
            return False
    return True


def describe_prompts(repeated: int, *, same: bool) -> str:
    """Which prompts the stages used."""
    if same:
        return "the same in every stage, not cached"
    return f"{repeated} were also sent in an earlier stage" if repeated else "new ones in every stage"


def notes(stages: Sequence[StageFigures]) -> Iterable[str]:
    """A sentence for each stage whose figures need one."""
    for stage in stages:
        figures = stage.figures
        if not stage.is_whole:
            yield f"{FAILED} {stage.name}: the stage did not run to its end"
        elif not stage.is_reached:
            yield f"{FAILED} {stage.name}: at most {stage.peak} requests were in flight"
        elif stage.lost:
            yield f"{FAILED} {stage.name}: {stage.lost} of the workers were lost during the stage"
        elif not figures.completed + figures.failed:
            yield f"{FAILED} {stage.name}: no request began and ended in the stage; make it longer"
        elif not stage.is_comparable:
            dropped = f", {quantity(stage.dropped, 'arrival')} dropped" if stage.dropped else ""
            unsent = f", {quantity(stage.unsent, 'arrival')} not sent before its end" if stage.unsent else ""
            failed = f"{figures.failed} of {quantity(figures.completed + figures.failed, 'request')} failed"
            bad = [check.text for check in stage.bad if check.name not in ("failure_ratio", "unanswered_ratio")]
            missing = [f"{failed}{dropped}{unsent}"] if figures.failed or stage.dropped or stage.unsent else []
            yield f"{FAILED} {stage.name}: " + "; ".join([*missing, *bad])
        elif stage.bad:
            for check in stage.bad:
                names = ", ".join(named(check.spoils, figures.distributions))
                yield f"{SPOILED_MARK} {stage.name}: {names} spoiled: {check.text}"
        if stage.crossing:
            yield f"{stage.name}: {quantity(stage.crossing, 'request')} that ended after it are left out of its latencies"
        if stage.unsettled_s > 0:
            yield _unsettled(stage)
    if not are_alike(stages):
        yield "no row is marked as best: mean lengths of prompts or answers differ by over 2 %"


def _unsettled(stage: StageFigures) -> str:
    """The time at its begin that is no part of its rates."""
    if not stage.figures.duration_s > 0:
        return f"{stage.name}: requests of the stage before were in flight for all of its time, so it has no rates; make it longer"
    return f"{stage.name}: its rates are without its first {stage.unsettled_s:.1f} s, when requests of the stage before ended"


def stage_lines(table: Table) -> list[str]:
    """The table of the stages for a terminal of 80 columns, without the model."""
    return text_lines(table.without(0), gap=" ")


def speed_table(stages: Sequence[StageFigures], t: Translate) -> Table:
    """Output tokens/s of all users and of one user."""
    heads = columns(t("Concurrency"), t("Output tok/s, all users"), t("Output tok/s, one user"))
    return Table(
        "", heads, [[stage_name(s), figure(s.figures.output_throughput), figure(s.figures.tok_per_s_per_user)] for s in stages]
    )


def speed_lines(stages: Sequence[StageFigures]) -> Iterable[str]:
    """Output tokens/s of all users and of one user, each as a bar."""
    known = [(stage_name(stage), stage.figures.output_throughput, stage.figures.tok_per_s_per_user) for stage in stages]
    rows = [(name, all_users, one_user) for name, all_users, one_user in known if all_users and one_user]
    if len(rows) < 2:
        return
    most, fastest = max(all_users for _, all_users, _ in rows), max(one_user for _, _, one_user in rows)
    width = max(len(name) for name, _, _ in rows)
    for name, all_users, one_user in rows:
        yield f"{name:<{width}} all users {all_users:>10.2f} {_bar(all_users / most)}"
        yield f"{'':<{width}} one user  {one_user:>10.2f} {_bar(one_user / fastest)}"


def _bar(share: float) -> str:
    return "█" * max(1, round(share * BAR_CHARS))
