"""What the formats of others take of a run.

Distributions with more percentiles than ours, and times on the wall clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from llama_load.analysis.figures.summary import distribution
from llama_load.analysis.results.results import Results
from llama_load.analysis.statistics.statistics import Distribution, describe
from llama_load.ground.units import NS_PER_S
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.vocabulary.definitions import BY_KEY

PERCENTILES = (0.1, 1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9)


@dataclass(frozen=True, slots=True)
class Sample:
    """The statistics of a sample with at least one value.

    With its smallest and its largest value, in its unit.
    """

    count: int
    mean: float
    std: float
    least: float
    most: float
    of: Distribution

    @property
    def percentiles(self) -> dict[float, float]:
        """The percentiles that it has enough values for."""
        known = {}
        for p in PERCENTILES:
            value = self.of.percentile(p)
            if value is not None:
                known[p] = value
        return known


def ok_records(results: Results) -> Records:
    """The measured requests with a complete answer."""
    return results.run.records.measured().ok()


def latency_sample(ok: Records, key: str) -> Sample | None:
    """A latency by its key (`ttft`, `itl`), ms; None where no request has it."""
    latency = BY_KEY[key]
    sample = distribution(ok, latency, PERCENTILES)
    if not latency.is_pooled:
        return _sample(sample, *_ends(latency.of_each(ok)))

    lows = []
    highs = []
    for piece in ok.gap_pieces():
        if len(piece):
            lows.append(float(np.nanmin(piece)))
            highs.append(float(np.nanmax(piece)))

    return _sample(sample, min(lows, default=0.0), max(highs, default=0.0))


def column_sample(ok: Records, name: str) -> Sample | None:
    """A numeric column, in its unit; None where no request has it."""
    return values_sample(ok.numbers(name))


def values_sample(
    values: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> Sample | None:
    """Any values; None where there is none."""
    return _sample(describe(values.copy(), PERCENTILES), *_ends(values))


def _ends(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[float, float]:
    """The smallest and the largest value; zeros where none is known."""
    if not np.isfinite(values).any():
        return 0.0, 0.0
    return float(np.nanmin(values)), float(np.nanmax(values))


def _sample(of: Distribution, least: float, most: float) -> Sample | None:
    if of.mean is None or of.std is None:
        return None
    return Sample(of.count, of.mean, of.std, least, most, of)


def wall_times(records: Records) -> tuple[datetime, datetime] | None:
    """When the first request began and the last one ended, by the clocks of the workers.

    None without requests.
    """
    if not len(records):
        return None

    began_ns = records.instants("started_wall_ns")
    took_ns = records.instants("ended_mono_ns") - records.instants("started_mono_ns")
    first_s = int(began_ns.min()) / NS_PER_S
    last_s = int((began_ns + took_ns).max()) / NS_PER_S

    return datetime.fromtimestamp(first_s, UTC), datetime.fromtimestamp(last_s, UTC)
