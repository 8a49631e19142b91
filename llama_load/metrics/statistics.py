"""Statistics of a sample: what vLLM's bench prints, and how far a percentile of so few values can be trusted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Distribution:
    """Mean, median, standard deviation and percentiles of a sample, in the sample's unit; None where it is empty.

    `percentiles` maps 99.0 to its value; `intervals` maps it to the (low, high) that holds the true percentile with
    95 % confidence, either end None where the sample is too small to tell.
    """

    count: int
    mean: float | None
    median: float | None
    std: float | None
    percentiles: dict[float, float | None] = field(default_factory=dict)
    intervals: dict[float, tuple[float | None, float | None]] = field(default_factory=dict)


def describe(values: NDArray[np.float64], percentiles: Sequence[float]) -> Distribution:
    """Statistics as vLLM computes them: numpy mean, median, std (ddof 0), linear percentiles. NaN values are left out."""
    values = np.sort(values[~np.isnan(values)])
    if not len(values):
        return Distribution(0, None, None, None, dict.fromkeys(percentiles), dict.fromkeys(percentiles, (None, None)))
    return Distribution(
        count=len(values),
        mean=float(np.mean(values)),
        median=float(np.median(values)),
        std=float(np.std(values)),
        percentiles={p: float(np.percentile(values, p)) for p in percentiles},
        intervals={p: percentile_interval(values, p) for p in percentiles},
    )


def percentile_interval(ordered: NDArray[np.float64], percentile: float) -> tuple[float | None, float | None]:
    """Distribution-free 95 % confidence interval of a percentile, from order statistics.

    The number of values below the true q-quantile is Binomial(n, q), so the l-th and u-th smallest values enclose it
    with probability P(l <= K < u). We take l as the largest with P(K < l) <= 2.5 % and u as the smallest with
    P(K >= u) <= 2.5 %; an end that would lie outside the sample is None. 1000 values, p99: the 983rd and the 997th.
    Source: Hahn and Meeker, Statistical Intervals, section 5.2.
    """
    n, q = len(ordered), percentile / 100
    tail = (1 - CONFIDENCE) / 2
    cumulative = np.cumsum(_binomial_pmf(n, q))
    # cumulative[k] = P(K <= k). Ranks are 1-based.
    low = int(np.searchsorted(cumulative, tail, side="right"))  # largest l with P(K <= l - 1) <= tail
    high = int(np.searchsorted(cumulative, 1 - tail, side="left")) + 1  # smallest u with P(K <= u - 1) >= 1 - tail
    return (
        float(ordered[low - 1]) if low >= 1 else None,
        float(ordered[high - 1]) if high <= n else None,
    )


def _binomial_pmf(n: int, q: float) -> NDArray[np.float64]:
    """P(K = k) for k = 0…n, by logarithms."""
    if q <= 0 or q >= 1:
        pmf = np.zeros(n + 1)
        pmf[0 if q <= 0 else n] = 1.0
        return pmf
    k = np.arange(n + 1)
    factorial = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, n + 1)))))
    log_pmf = factorial[n] - factorial[k] - factorial[n - k] + k * math.log(q) + (n - k) * math.log1p(-q)
    return np.asarray(np.exp(log_pmf))
