"""A quantile sketch: counts in buckets whose widths grow with the value, so that every quantile has the same relative error.

Bucket i holds the values in (10^((i-1)/120), 10^(i/120)] times 0.01 ms: 120 buckets a decade, nine decades, 0.01 ms to 10,000 s.
A quantile is given as the middle of its bucket, 2b/(1+g) for the upper bound b and g = 10^(1/120): off by at most
(g-1)/(g+1) = 0.96 %. Two sketches are merged by adding their counts. (The idea is that of DDSketch, Masson et al. 2019.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

PER_DECADE = 120
DECADES = 9
LEAST_MS = 0.01
# One bucket below all (up to LEAST_MS) and one above all.
BUCKETS = PER_DECADE * DECADES + 2
# The largest relative error of a quantile between 0.01 ms and 10,000 s.
RELATIVE_ERROR = (10 ** (1 / PER_DECADE) - 1) / (10 ** (1 / PER_DECADE) + 1)
# Upper bounds for histograms, in ms: six a decade, each the bound of a bucket, so that their counts are exact. 0.1 ms to 1000 s.
HISTOGRAM_STEP = PER_DECADE // 6
HISTOGRAM_BUCKETS = np.arange(PER_DECADE, PER_DECADE * 8 + 1, HISTOGRAM_STEP)

_GROWTH = 10 ** (1 / PER_DECADE)


def bounds_ms(buckets: NDArray[np.int64]) -> NDArray[np.float64]:
    """The upper bounds of these buckets in ms. Bucket 0: 0.01; bucket 360: 10.0."""
    return np.asarray(LEAST_MS * np.power(10.0, buckets / PER_DECADE))


MIDDLES_MS = bounds_ms(np.arange(BUCKETS)) * 2 / (1 + _GROWTH)
MIDDLES_MS[0] = LEAST_MS  # also of a gap of zero: merged events
MIDDLES_MS[-1] = LEAST_MS * 10.0**DECADES


def bucket_of(values_ms: NDArray[np.float64]) -> NDArray[np.int64]:
    """The bucket of each value. (A value that is a bound up to rounding belongs to the bucket that it bounds.)"""
    places = np.log10(np.maximum(values_ms, LEAST_MS) / LEAST_MS) * PER_DECADE
    return np.clip(np.ceil(places - 1e-9), 0, BUCKETS - 1).astype(np.int64)


def quantiles_ms(counts: NDArray[np.integer], percentiles: Sequence[float]) -> list[float | None]:
    """Percentiles of the counted values in ms, between ranks as numpy's default; all None without values."""
    cumulative = np.cumsum(counts)
    total = int(cumulative[-1])
    if not total:
        return [None] * len(percentiles)
    ranks = np.array([percentile / 100 * (total - 1) for percentile in percentiles])
    low, high = (np.searchsorted(cumulative, part(ranks), side="right") for part in (np.floor, np.ceil))
    share = ranks - np.floor(ranks)
    return [float(value) for value in MIDDLES_MS[low] * (1 - share) + MIDDLES_MS[high] * share]


def quantiles_of_rows_ms(counts: NDArray[np.integer], percentiles: Sequence[float]) -> list[list[float | None]]:
    """For each percentile its value in every row of counts, by nearest rank (of few values the largest ones); None in an empty
    row."""
    cumulative = np.cumsum(counts, axis=1, dtype=np.int64)
    totals = cumulative[:, -1]
    quantiles = []
    for percentile in percentiles:
        ranks = np.maximum(np.ceil(totals * percentile / 100), 1)
        places = np.argmax(cumulative >= ranks[:, None], axis=1)
        quantiles.append([float(MIDDLES_MS[place]) if total else None for place, total in zip(places, totals, strict=True)])
    return quantiles
