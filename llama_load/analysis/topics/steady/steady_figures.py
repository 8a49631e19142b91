"""The figures of the steady part of a run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llama_load.analysis.figures.stage_figures import with_window_rates
from llama_load.analysis.figures.summary import Summary, summarize
from llama_load.analysis.topics.steady.steady_part import SteadyPart, steady_part
from llama_load.analysis.topics.topic import TopicInput
from llama_load.ground.units import ns_to_s
from llama_load.run_folder.observed.window import Window


@dataclass(frozen=True, slots=True)
class SteadyFigures:
    """The steady part of a run.

    `figures`: of its requests; rates of all that happened in its time; None without a steady part.
    `origin_ns`: from which the run's seconds are counted. `whole`: the figures of the whole run,
    with `measured` requests.
    """

    part: SteadyPart
    figures: Summary | None
    origin_ns: int
    whole: Summary
    measured: int

    def seconds(self, instant_ns: int | None) -> float | None:
        """An instant in seconds of the run."""
        if instant_ns is None:
            return None
        return ns_to_s(instant_ns - self.origin_ns)


def steady_figures(given: TopicInput) -> SteadyFigures | None:
    """The steady part of a run whose configured load was constant; None for others."""
    evidence = given.constant
    records = evidence.records
    if not evidence.is_steady or not len(records):
        return None

    started_ns = records.instants("started_mono_ns")
    is_open = evidence.gap_ms is not None and bool(
        records.has("scheduled_mono_ns").all()
    )
    at_ns = records.instants("scheduled_mono_ns") if is_open else started_ns
    part = steady_part(
        started_ns,
        records.instants("ended_mono_ns"),
        np.where(records.numbers("turn") > 1, np.nan, records.numbers("tpot_ms")),
        scheduled_ns=at_ns if is_open else None,
        concurrency=None if is_open else evidence.users,
    )
    figures = None
    if part.begin_ns is not None and part.end_ns is not None:
        window = Window(part.begin_ns, part.end_ns, is_cut=True)
        own = summarize(
            records.where(part.holds(at_ns)), evidence.percentiles, given.slos
        )
        figures = with_window_rates(own, records, window, given.slos)

    return SteadyFigures(
        part, figures, int(at_ns.min()), given.total, len(given.measured)
    )
