"""A quantile sketch: counts in buckets whose widths grow with the value.

So every quantile has the same relative error. Bucket i holds the values in (10^((i-1)/120),
10^(i/120)] times 0.01 ms: 120 buckets a decade, nine decades, 0.01 ms to 10,000 s. A quantile is
given as the middle of its bucket, 2b/(1+g) for the upper bound b and g = 10^(1/120): off by at most
(g-1)/(g+1) = 0.96 %. Two sketches are merged by adding their counts. (The idea is that of DDSketch,
Masson et al. 2019.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

PER_DECADE = 120
DECADES = 9
LEAST_MS = 0.01
# One bucket below all (up to LEAST_MS) and one above all.
BUCKETS = PER_DECADE * DECADES + 2
# The largest relative error of a quantile between 0.01 ms and 10,000 s.
RELATIVE_ERROR = (10 ** (1 / PER_DECADE) - 1) / (10 ** (1 / PER_DECADE) + 1)
# Upper bounds for histograms, in ms: six a decade, each the bound of a bucket, so that their counts
# are exact. 0.1 ms to 1000 s.
HISTOGRAM_STEP = PER_DECADE // 6
HISTOGRAM_BUCKETS = np.arange(PER_DECADE, PER_DECADE * 8 + 1, HISTOGRAM_STEP)

_GROWTH = 10 ** (1 / PER_DECADE)


def bounds_ms(buckets: Integers) -> Floats:
    """The upper bounds of these buckets in ms. Bucket 0: 0.01; bucket 360: 10.0."""
    decades = buckets / PER_DECADE
    return np.asarray(LEAST_MS * np.power(10.0, decades))


MIDDLES_MS = bounds_ms(np.arange(BUCKETS)) * 2 / (1 + _GROWTH)
MIDDLES_MS[0] = LEAST_MS  # also of a gap of zero: merged events
MIDDLES_MS[-1] = LEAST_MS * 10.0**DECADES


def bucket_of(values_ms: Floats) -> Integers:
    """The bucket of each value.

    (A value that is a bound up to rounding belongs to the bucket that it bounds.)
    """
    ratios = np.maximum(values_ms, LEAST_MS) / LEAST_MS
    decades = np.log10(ratios)
    buckets = np.ceil(decades * PER_DECADE - 1e-9)
    buckets = np.clip(buckets, 0, BUCKETS - 1)

    return buckets.astype(np.int64)


def quantiles_ms(
    counts: NDArray[np.integer], percentiles: Sequence[float]
) -> list[float | None]:
    """Percentiles of the counted values in ms, between ranks as numpy's default.

    All are None without values.
    """
    cumulative = np.cumsum(counts)
    total = int(cumulative[-1])
    if not total:
        return [None] * len(percentiles)

    shares = np.asarray(percentiles, float) / 100
    ranks = shares * (total - 1)
    lower = np.floor(ranks)
    upper = np.ceil(ranks)
    low = np.searchsorted(cumulative, lower, side="right")
    high = np.searchsorted(cumulative, upper, side="right")
    share = ranks - lower
    of_lower = MIDDLES_MS[low] * (1 - share)
    of_upper = MIDDLES_MS[high] * share
    quantiles: list[float | None] = (of_lower + of_upper).tolist()

    return quantiles


def quantiles_of_rows_ms(
    counts: NDArray[np.integer], percentiles: Sequence[float]
) -> list[list[float | None]]:
    """For each percentile its value in every row of counts; None in an empty row.

    By nearest rank (of few values the largest ones).
    """
    cumulative = np.cumsum(counts, axis=1, dtype=np.int64)
    totals = cumulative[:, -1]
    quantiles = []
    for percentile in percentiles:
        ranks = np.ceil(totals * percentile / 100)
        ranks = np.maximum(ranks, 1)
        is_reached = cumulative >= ranks[:, None]
        places = np.argmax(is_reached, axis=1)
        column: list[float | None] = MIDDLES_MS[places].tolist()
        empty_rows = np.flatnonzero(totals == 0)
        for row in empty_rows:
            column[row] = None

        quantiles.append(column)

    return quantiles
