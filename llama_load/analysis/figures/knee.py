"""Two loads of a run in stages: the knee, where a server is used well and nobody waits yet, and the
largest within objectives."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from llama_load.analysis.figures.goodput_doubt import goodput_doubt
from llama_load.analysis.figures.spoiled import RATES, TPOT
from llama_load.analysis.figures.stage_figures import StageFigures
from llama_load.analysis.statistics.carried_share import CARRIED_SHARE

LEAST_STAGES = 3
# Checks that fail where a server cannot keep up with its load.
OVERLOADED = frozenset(
    ("failure_ratio", "dropped_ratio", "unanswered_ratio", "backlog_ratio")
)


def power(stage: StageFigures) -> float | None:
    """Output tokens/s of all users x output tokens/s that one user sees; None where one is unknown.

    Below saturation more users raise the first and hardly change the second; above it they lower
    only the second. 200 tok/s and 25 tok/s per user: 5000. Source: Kleinrock's power, throughput /
    delay (Power and deterministic rules of thumb for probabilistic problems in computer
    communications, 1979).
    """
    total = stage.figures.output_throughput
    per_user = stage.figures.tok_per_s_per_user
    return total * per_user if total and per_user else None


def has_power(stage: StageFigures) -> bool:
    """Whether neither its rates nor its TPOT are spoiled."""
    return stage.is_comparable and stage.is_usable(RATES, TPOT)


def knee(stages: Sequence[StageFigures]) -> StageFigures | None:
    """The comparable stage with the most `power`, if there are at least three of them and it is
    neither the smallest nor the largest load among them: at an end of the curve the knee lies
    beyond what was measured.

    1 user: 50 tok/s at 50 each (2500); 8: 240 at 30 (7200); 32: 256 at 8 (2048): the knee is 8.
    """
    known = [
        (value, stage)
        for stage in stages
        if has_power(stage) and (value := power(stage)) is not None
    ]
    if len(known) < LEAST_STAGES:
        return None
    loads = [stage.load for _, stage in known]
    _, best = max(known, key=lambda entry: entry[0])
    return None if best.load in (min(loads), max(loads)) else best


@dataclass(frozen=True, slots=True)
class Carried:
    """The largest load within the objectives, and the next one, at which the row of loads ended."""

    best: (
        StageFigures | None
    )  # None: not even the smallest load is known to be within them
    next: StageFigures | None  # None: the largest load is within them
    why: str | None  # why the next one was not judged; None: it was, and misses them


def carried(stages: Sequence[StageFigures], metrics: Collection[str] = ()) -> Carried:
    """The largest load at which at least `CARRIED_SHARE` of the requests met the objectives, as at
    all smaller loads.

    `metrics`: the latencies that these limit. A stage is judged if it ran to its end at its load
    and no failed check spoils it or these latencies; one that is BLURRED by its ITL is judged by
    its TTFT. Requests that failed, were dropped or piled up did not meet them. Of 100 requests each
    at 1, 4, 8 and 16 users 100, 93, 80 and 91 met them: 4 users.
    """
    best = None
    for stage in sorted(stages, key=lambda stage: stage.load):
        why = _not_judged(stage, metrics)
        good = stage.figures.good_requests
        ended = stage.figures.completed + stage.figures.failed
        is_missed = _is_overloaded(stage) or (
            why is None and (good or 0) < CARRIED_SHARE * ended
        )
        if is_missed or why is not None:
            return Carried(best, stage, None if is_missed else why)
        best = stage
    return Carried(best, None, None)


def _is_overloaded(stage: StageFigures) -> bool:
    """Whether the server could not keep up, which needs no latency to be seen."""
    return stage.is_whole and any(check.name in OVERLOADED for check in stage.bad)


def _not_judged(stage: StageFigures, metrics: Collection[str]) -> str | None:
    """Why this stage cannot be judged; None where it can."""
    if not stage.is_whole:
        return "it did not run to its end"
    if not stage.is_measured:
        return "its load was not reached"
    whole = stage.spoiling()
    doubt = whole[0] if whole else goodput_doubt(stage.bad, metrics, stage.figures)
    if doubt is not None:
        return f"{doubt.word}: {doubt.text}"
    if stage.figures.good_requests is None:
        return "an objective was not measured"
    return None
