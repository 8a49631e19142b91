"""Whether a latency grows while the load stays the same: thermal throttling, or a queue that grows without end."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# With fewer values per quarter, chance explains any trend.
LEAST_A_QUARTER = 8
# One-sided: a false alarm in 1 of 1000 runs; the ratio of medians must exceed its limit, too.
SIGNIFICANCE_Z = 3.1


@dataclass(frozen=True, slots=True)
class Drift:
    """Medians of the first and of the last quarter, in the unit of the values; `grew`: the increase is significant."""

    first: float
    last: float
    grew: bool

    @property
    def ratio(self) -> float:
        """Last / first: 4.0 is four times as slow."""
        return self.last / self.first if self.first > 0 else math.inf if self.last > 0 else 1.0


def drift(values: NDArray[np.float64], begun_ns: NDArray[np.int64]) -> Drift | None:
    """The change from the first to the last quarter of the requests, in the order of `begun_ns`; None: too few requests.

    It counts as growth if the rank-sum test of both quarters has z > 3.1.

    Source: H. B. Mann, D. R. Whitney, "On a Test of Whether one of Two Random Variables is Stochastically Larger", 1947.
    """
    known = ~np.isnan(values)
    values = values[known][np.argsort(begun_ns[known], kind="stable")]
    size = len(values) // 4
    if size < LEAST_A_QUARTER:
        return None
    first, last = values[:size], values[-size:]
    return Drift(float(np.median(first)), float(np.median(last)), grew=_rank_sum_z(first, last) > SIGNIFICANCE_Z)


def _rank_sum_z(low: NDArray[np.float64], high: NDArray[np.float64]) -> float:
    """How many standard deviations `high` ranks above `low`; ties share their rank."""
    m, n = len(low), len(high)
    pooled = np.concatenate((low, high))
    _, places, counts = np.unique(pooled, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    above = float(ranks[m:].sum()) - n * (n + 1) / 2
    ties = float((counts**3 - counts).sum()) / ((m + n) * (m + n - 1))
    variance = m * n / 12 * (m + n + 1 - ties)
    return (above - m * n / 2) / math.sqrt(variance) if variance > 0 else 0.0
