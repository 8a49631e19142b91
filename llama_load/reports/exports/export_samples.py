"""What the formats of others take of a run: distributions with more percentiles than ours, and times on the wall clock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from llama_load.analysis.results import Results
from llama_load.metrics.definitions import BY_KEY
from llama_load.metrics.statistics import Distribution, describe
from llama_load.metrics.summary import distribution
from llama_load.observed.records import Records
from llama_load.units import NS_PER_S

PERCENTILES = (0.1, 1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9)


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample with at least one value: its statistics, its smallest and its largest value, in its unit."""

    count: int
    mean: float
    std: float
    least: float
    most: float
    of: Distribution

    @property
    def percentiles(self) -> dict[float, float]:
        """The percentiles that it has enough values for."""
        return {p: value for p in PERCENTILES if (value := self.of.percentile(p)) is not None}


def ok_records(results: Results) -> Records:
    """The measured requests with a complete answer."""
    return results.run.records.measured().ok()


def latency_sample(ok: Records, key: str) -> Sample | None:
    """A latency by its key (`ttft`, `itl`), ms; None where no request has it."""
    latency = BY_KEY[key]
    sample = distribution(ok, latency, PERCENTILES)
    if latency.is_pooled:
        ends = [(float(np.nanmin(piece)), float(np.nanmax(piece))) for piece in ok.gap_pieces() if len(piece)]
        return _sample(sample, min((low for low, _ in ends), default=0.0), max((high for _, high in ends), default=0.0))
    return _sample(sample, *_ends(latency.of_each(ok)))


def column_sample(ok: Records, name: str) -> Sample | None:
    """A numeric column, in its unit; None where no request has it."""
    return values_sample(ok.numbers(name))


def values_sample(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Sample | None:
    """Any values; None where there is none."""
    return _sample(describe(values.copy(), PERCENTILES), *_ends(values))


def _ends(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[float, float]:
    return (float(np.nanmin(values)), float(np.nanmax(values))) if np.isfinite(values).any() else (0.0, 0.0)


def _sample(of: Distribution, least: float, most: float) -> Sample | None:
    return None if of.mean is None or of.std is None else Sample(of.count, of.mean, of.std, least, most, of)


def wall_times(records: Records) -> tuple[datetime, datetime] | None:
    """When the first request began and the last one ended, by the clocks of the workers; None without requests."""
    if not len(records):
        return None
    began = records.instants("started_wall_ns")
    took = records.instants("ended_mono_ns") - records.instants("started_mono_ns")
    first, last = int(began.min()), int((began + took).max())
    return datetime.fromtimestamp(first / NS_PER_S, UTC), datetime.fromtimestamp(last / NS_PER_S, UTC)
