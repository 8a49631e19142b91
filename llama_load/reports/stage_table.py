"""The table with a row per stage, and output tokens/s of all users against those of one user."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from llama_load.foreign_text import markdown
from llama_load.metrics.stage_figures import StageFigures
from llama_load.metrics.statistics import Distribution
from llama_load.reports.layout import in_columns, without_long_decimals
from llama_load.units import quantity

COLUMNS = ("Model", "Concurrency", "Duration (s)", "Req/s", "Output Tok/s", "Total Tok/s", "Mean TTFT (ms)", "Mean TPOT (ms)")
# The latency whose scatter a column has: rates of a closed loop are as uncertain as the mean E2EL that they follow from.
_SCATTER = ("e2el", "e2el", "e2el", "e2el", "ttft", "tpot")
LEAST_ERRORS = 2.0  # beyond which a difference is not chance in 19 of 20 pairs
FAILED = "†"
BAR_CHARS = 30
MOST_UNLIKE = 0.02  # longer prompts take longer: rows are not ranked if mean lengths differ by more


@dataclass(frozen=True, slots=True)
class Cell:
    """A figure as text, and whether it is the best of its column."""

    text: str
    best: bool = False

    @property
    def markdown(self) -> str:
        """Bold if it is the best."""
        text = markdown(self.text)
        return f"**{text}**" if self.best else text


Row = tuple[Cell, ...]


def stage_name(stage: StageFigures) -> str:
    """The cell under Concurrency: c=8, or the rate in an open loop; marked if the row is not ranked."""
    plain = stage.users is not None and stage.name == str(stage.users)
    return (f"c={stage.name}" if plain else stage.name) + ("" if stage.is_comparable else f" {FAILED}")


def stage_rows(stages: Sequence[StageFigures], model: str | None) -> list[Row]:
    """A row per stage: model, concurrency, and six figures. The best of each column is marked among the comparable rows, if their
    prompts and answers have similar lengths and it is better than each other by more than the scatter of the requests explains;
    the duration only if all sent the same number of requests."""
    names = ("duration_s", "request_throughput", "output_throughput", "total_token_throughput")
    figures = [
        [
            *(getattr(stage.figures, name) for name in names),
            stage.figures.distributions["ttft"].mean,
            stage.figures.distributions["tpot"].mean,
        ]
        for stage in stages
    ]
    same_count = len({stage.figures.completed for stage in stages if stage.is_comparable}) == 1
    alike = are_alike(stages)
    best: list[float | None] = []
    for column, choose in enumerate((min, max, max, max, min, min)):
        known = [
            (value, _relative_error(stage.figures.distributions[_SCATTER[column]]))
            for row, stage in zip(figures, stages, strict=True)
            if stage.is_comparable and (value := row[column]) is not None
        ]
        ranked = len(known) > 1 and (column > 0 or same_count) and alike
        best.append(_clearly(choose(known), known) if ranked else None)
    return [
        (
            Cell(model or "n/a"),
            Cell(stage_name(stage)),
            *(
                Cell("n/a" if value is None else f"{value:.2f}", stage.is_comparable and value is not None and value == top)
                for value, top in zip(row, best, strict=True)
            ),
        )
        for row, stage in zip(figures, stages, strict=True)
    ]


def _relative_error(sample: Distribution) -> float:
    """The standard error of a mean relative to it, by the scatter of the requests; infinite with a single one."""
    if sample.count < 2 or not sample.mean or sample.std is None:
        return math.inf
    return sample.std / math.sqrt(sample.count - 1) / sample.mean


def _clearly(top: tuple[float, float], known: Sequence[tuple[float, float]]) -> float | None:
    """The best value, if it differs from each other by more than `LEAST_ERRORS` standard errors, else None. `top`, `known`: values
    with their relative errors."""
    best, error = top
    others = [each for each in known if each[0] != best]
    is_clear = all(abs(value - best) > LEAST_ERRORS * math.hypot(theirs * value, error * best) for value, theirs in others)
    return best if is_clear else None


def are_alike(stages: Sequence[StageFigures]) -> bool:
    """Whether the mean lengths of prompts and answers differ by at most 2 % between the comparable stages."""
    lengths = [stage.mean_lengths for stage in stages if stage.is_comparable]
    for each in zip(*lengths, strict=True):
        known = [length for length in each if length]
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
            spoilt = figures.failed or stage.dropped or stage.unsent
            yield f"{FAILED} {stage.name}: " + "; ".join([f"{failed}{dropped}{unsent}"] * bool(spoilt) + bad)
        if stage.crossing:
            yield f"{stage.name}: {quantity(stage.crossing, 'request')} that ended after it are left out of its latencies"
    if not are_alike(stages):
        yield "no row is marked as best: mean lengths of prompts or answers differ by over 2 %"


def stage_lines(rows: Sequence[Row]) -> Iterable[str]:
    """The rows for a terminal of 80 columns, without the model; the best are marked by an asterisk."""
    heads = (
        ("Concurrency", "Duration", "Req/s", "Output", "Total", "Mean TTFT", "Mean TPOT"),
        ("", "(s)", "", "tok/s", "tok/s", "(ms)", "(ms)"),
    )
    cells = [
        [name.text, *(without_long_decimals(cell.text) + ("*" if cell.best else " ") for cell in row)] for _, name, *row in rows
    ]
    return in_columns([*([*head[:1], *(f"{name} " for name in head[1:])] for head in heads), *cells])


def speed_lines(stages: Sequence[StageFigures]) -> Iterable[str]:
    """Output tokens/s of all users and of one user, each as a bar."""
    known = [(stage, stage.figures.output_throughput, stage.tok_per_s_per_user) for stage in stages]
    rows = [(stage_name(stage), total, each) for stage, total, each in known if total and each]
    if len(rows) < 2:
        return
    most, fastest = max(total for _, total, _ in rows), max(each for _, _, each in rows)
    width = max(len(name) for name, _, _ in rows)
    for name, total, each in rows:
        yield f"{name:<{width}} all users {total:>10.2f} {_bar(total / most)}"
        yield f"{'':<{width}} one user  {each:>10.2f} {_bar(each / fastest)}"


def _bar(share: float) -> str:
    return "█" * max(1, round(share * BAR_CHARS))
