"""Two loads of a run in stages: the knee, where a server is used well and nobody waits yet, and the largest within objectives."""

from __future__ import annotations

from collections.abc import Sequence

from llama_load.metrics.carried_share import CARRIED_SHARE
from llama_load.metrics.stage_figures import StageFigures

LEAST_STAGES = 3


def power(stage: StageFigures) -> float | None:
    """Output tokens/s of all users x output tokens/s that one user sees; None where one is unknown.

    Below saturation more users raise the first and hardly change the second; above it they lower only the second. 200 tok/s and
    25 tok/s per user: 5000. Source: Kleinrock's power, throughput / delay (Power and deterministic rules of thumb for
    probabilistic problems in computer communications, 1979).
    """
    total, per_user = stage.figures.output_throughput, stage.figures.tok_per_s_per_user
    return total * per_user if total and per_user else None


def knee(stages: Sequence[StageFigures]) -> StageFigures | None:
    """The comparable stage with the most `power`, if there are at least three of them and it is neither the smallest nor the
    largest load among them: at an end of the curve the knee lies beyond what was measured.

    1 user: 50 tok/s at 50 each (2500); 8: 240 at 30 (7200); 32: 256 at 8 (2048): the knee is 8.
    """
    known = [(value, stage) for stage in stages if stage.is_comparable and (value := power(stage)) is not None]
    if len(known) < LEAST_STAGES:
        return None
    loads = [stage.load for _, stage in known]
    _, best = max(known, key=lambda entry: entry[0])
    return None if best.load in (min(loads), max(loads)) else best


def carried(stages: Sequence[StageFigures]) -> StageFigures | None:
    """The largest load at which at least `CARRIED_SHARE` of the requests met the objectives, as at all smaller loads; a stage that
    is not comparable, or whose requests were not all measured, ends the row. None: not even the smallest load is carried.

    Of 100 requests each at 1, 4, 8 and 16 users 100, 93, 80 and 91 met them: 4 users.
    """
    best = None
    for stage in sorted(stages, key=lambda stage: stage.load):
        good, ended = stage.figures.good_requests, stage.figures.completed + stage.figures.failed
        if not stage.is_comparable or good is None or good < CARRIED_SHARE * ended:
            break
        best = stage
    return best
