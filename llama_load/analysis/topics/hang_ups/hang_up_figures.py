"""Users who hung up (--abort-rate): what they cost, and what the others felt of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.statistics.gap_times import COLUMNS, gap_times
from llama_load.analysis.statistics.statistics import median
from llama_load.analysis.topics.topic import TopicInput
from llama_load.ground.units import NS_PER_MS
from llama_load.run_folder.observed.hang_up_check import HangUpCheck
from llama_load.run_folder.observed.records import Records

# Freeing a slot and dropping its cache happens in the next steps of the server.
NEAR_MS = 500.0


@dataclass(frozen=True, slots=True)
class HangUpFigures:
    """The aborted requests, and gaps between tokens of answered ones. None: there is no value."""

    aborted: int
    before_first_token: int
    wasted_tokens: int  # of the aborted requests, as the next two
    median_ttft_ms: float | None
    median_waited_ms: float | None  # until the user hung up
    near_gaps: int  # gaps that ended within `NEAR_MS` after a hang-up
    near_median_ms: float | None
    near_longest_ms: float | None
    other_median_ms: float | None  # of all other gaps
    other_longest_ms: float | None


@dataclass(frozen=True, slots=True)
class HangUps:
    """The figures of a run, and what each server was seen to do with the slots."""

    figures: HangUpFigures
    checks: Sequence[HangUpCheck]


def hang_ups(given: TopicInput) -> HangUps | None:
    """The figures and checks of a run; None where nobody hung up."""
    figures = hang_up_figures(given.measured)
    if figures is None:
        return None
    return HangUps(figures, given.run.manifest.hang_ups)


def hang_up_figures(measured: Records) -> HangUpFigures | None:
    """The figures of a run; None where nobody hung up."""
    aborted = measured.aborted()
    if not len(aborted):
        return None

    started = aborted.instants("started_mono_ns")
    first = aborted.optional_instants("first_token_mono_ns")
    has_first = first >= 0
    near, others = _gaps_after_hang_ups(measured.ok(), aborted)

    return HangUpFigures(
        aborted=len(aborted),
        before_first_token=int((~has_first).sum()),
        wasted_tokens=int(np.nansum(aborted.numbers("output_tokens"))),
        median_ttft_ms=median((first - started)[has_first] / NS_PER_MS),
        median_waited_ms=median(
            (aborted.instants("ended_mono_ns") - started) / NS_PER_MS
        ),
        near_gaps=len(near),
        near_median_ms=median(near),
        near_longest_ms=float(near.max()) if len(near) else None,
        other_median_ms=median(others),
        other_longest_ms=float(others.max()) if len(others) else None,
    )


def _gaps_after_hang_ups(
    ok: Records, aborted: Records
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The gaps that ended soon after a hang-up on the same server, and the others, ms."""
    none = np.zeros(0, dtype=np.float32)
    near = [none]
    others = [none]
    for host in ok.values_of("host"):
        on_host = aborted.where(aborted.equals("host", host))
        hung_up_ns = np.sort(on_host.instants("ended_mono_ns"))
        for batch in ok.where(ok.equals("host", host)).batches(*COLUMNS):
            gaps = gap_times(batch)
            place = np.searchsorted(hung_up_ns, gaps.ended_ns, side="right")
            last_ns = np.append(-np.inf, hung_up_ns)[place]
            is_near = gaps.ended_ns - last_ns <= NEAR_MS * NS_PER_MS
            near.append(gaps.ms[is_near])
            others.append(gaps.ms[~is_near])

    return np.concatenate(near), np.concatenate(others)
