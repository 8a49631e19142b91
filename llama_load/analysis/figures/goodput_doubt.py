"""Whether a failed check makes goodput uncertain."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from llama_load.analysis.figures.check import Check
from llama_load.analysis.figures.spoiled import spoiled_latencies
from llama_load.analysis.figures.summary import Summary


def goodput_doubt(
    failed: Iterable[Check], latencies: Collection[str], figures: Summary
) -> Check | None:
    """The first of these failed checks that spoils a latency with an objective; None where no doubt
    within its bound could turn a request.

    A lag of 40 ms turns no request of 248 ms with the objective ttft:5000, nor one of 9 s.
    """
    spoiling = []
    most_ms = 0.0
    for check in failed:
        if not set(latencies) & set(spoiled_latencies(check.spoils)):
            continue
        if check.bound is None:
            return check
        spoiling.append(check)
        most_ms += check.bound.ms

    margin_ms = figures.goodput_margin_ms
    if not spoiling or (margin_ms is not None and most_ms < margin_ms):
        return None
    return spoiling[0]
