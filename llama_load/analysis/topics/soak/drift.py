"""A long run: how much latencies, throughput and the server's memory drift per hour, and when
failures came together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from llama_load.analysis.statistics.changes import Change
from llama_load.analysis.statistics.constancy import (
    E2EL,
    THROUGHPUT,
    TPOT,
    TTFT,
    tokens_per_s,
)
from llama_load.analysis.statistics.constant_load import Observed
from llama_load.analysis.statistics.failure_change import failure_change
from llama_load.analysis.statistics.slices import Slices, Values
from llama_load.analysis.statistics.trend import slope_interval, theil_sen
from llama_load.ground.units import MIB, ns_to_s
from llama_load.run_folder.observed.telemetry_series import Series

# A run this long has a section about its drift.
LEAST_HOURS = 1.0
# Slices of five minutes, at least 12 and at most 200 of equal length.
SLICES_AN_HOUR = 12
FEWEST = 12
MOST = 200


@dataclass(frozen=True, slots=True)
class Drift:
    """What a figure changes per hour."""

    name: str
    unit: str  # of `level` and of all changes
    level: float  # the median slice
    per_hour: float  # Theil-Sen's slope over the slices
    low: float  # 95 % interval of the slope by a block bootstrap
    high: float

    @property
    def share(self) -> float:
        """The change per hour as a share of the level: 0.02 is 2 % an hour."""
        return self.per_hour / self.level if self.level else 0.0

    @property
    def is_certain(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, slots=True)
class Soak:
    """A long run: its drifts, and the part of the time in which failures came together (None: they
    did not)."""

    hours: float
    drifts: Sequence[Drift]
    failures: Change | None


def soak(seen: Observed, memory: Mapping[str, Series]) -> Soak | None:
    """The drift of a run of at least an hour, else None. `memory`: gauges in bytes, by the name to
    show.

    On AR(1) noise with r = 0.5 the 95 % interval of a slice's drift holds the truth in at least 90
    % (benchmarks/steadiness.py).
    """
    hours = ns_to_s(seen.end_ns - seen.begin_ns) / 3600
    if hours < LEAST_HOURS:
        return None

    count = min(MOST, max(FEWEST, round(hours * SLICES_AN_HOUR)))
    slices = Slices(seen.begin_ns, seen.end_ns, count)
    middles = _middles(slices)
    latencies = {TTFT: seen.ttft_ms, TPOT: seen.tpot_ms, E2EL: seen.e2el_ms}
    drifts = []
    for name, values in latencies.items():
        known = ~np.isnan(values)
        if known.any():
            levels = slices.mean(
                values[known], seen.started_ns[known], seen.ended_ns[known]
            )
            drifts.append(_drift(name, "ms", middles, levels))

    drifts.append(_drift(THROUGHPUT, "tok/s", middles, tokens_per_s(seen, slices)))
    for name, series in memory.items():
        drifts.append(_drift(name, "MiB", *_medians(slices, series)))

    known_drifts = [drift for drift in drifts if drift is not None]

    return Soak(hours, known_drifts, failure_change(seen))


def _drift(name: str, unit: str, hours: Values, levels: Values) -> Drift | None:
    known = np.isfinite(levels)
    if known.sum() < FEWEST:
        return None

    hours = hours[known]
    levels = levels[known]
    slope = theil_sen(hours, levels)[0]
    low, high = slope_interval(hours, levels)

    return Drift(name, unit, float(np.median(levels)), slope, low, high)


def _middles(slices: Slices) -> Values:
    """The middles of the slices, h."""
    return (np.arange(slices.count) + 0.5) * slices.seconds / 3600


def _medians(slices: Slices, series: Series) -> tuple[Values, Values]:
    """The median instant (h) and value (MiB) of a gauge's samples in each slice; of a value that
    stays the same, which has no samples, the line between those around it."""
    hours = (series.t_ns - slices.begin_ns) / 3600e9
    values = series.values / MIB
    edges_ns = [slices.edge_ns(number) for number in range(slices.count + 1)]
    edges = np.searchsorted(series.t_ns, edges_ns)

    at = _middles(slices)
    levels = np.interp(at, hours, values)
    for number, (begin, end) in enumerate(pairwise(edges)):
        if end > begin:
            at[number] = np.median(hours[begin:end])
            levels[number] = np.median(values[begin:end])

    return at, levels
