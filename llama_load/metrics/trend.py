"""Tests of a series for a trend and for a shift, and the size of the change: for short series of bucket medians.

Neighbours in such a series are correlated (requests share a queue), so that the usual tests see changes where there are none;
each test here widens its variance by the correlation that it measures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

# Level of both tests.
ALPHA = 0.01
# Two-sided 1 % of the normal distribution.
Z_TREND = 2.576
# Longer series are reduced to medians of neighbours: Theil-Sen compares all pairs.
MOST_VALUES = 200
# Critical values of Pettitt's max |U| at 1 %, for 10, 11, … 40 values, from 400,000 permutations each; his formula
# 2 exp(-6 K² / (n³ + n²)) is far too careful for so few.
PETTITT_FEWEST = 10
# fmt: off
PETTITT = (
    25, 29, 34, 39, 44, 49, 54, 59, 65, 71, 76, 83, 88, 95, 101, 107,
    114, 121, 129, 135, 143, 151, 158, 165, 173, 181, 189, 197, 206, 215, 223,
)
# fmt: on


@dataclass(frozen=True, slots=True)
class Trend:
    """Theil-Sen's change over the whole series, as a share of its level at the begin (0.1: + 10 %), the z of Mann-Kendall, and
    the mean absolute distance of the values from the line."""

    change: float
    z: float
    misfit: float

    @property
    def is_significant(self) -> bool:
        """Whether the trend is significant at 1 %."""
        return abs(self.z) > Z_TREND


@dataclass(frozen=True, slots=True)
class Shift:
    """A shift of the level before value number `at`: medians before and after, whether it is significant at 1 %, and the mean
    absolute distance of the values from these levels."""

    at: int
    before: float
    after: float
    is_significant: bool
    misfit: float

    @property
    def change(self) -> float:
        """(after - before) / before. 20 to 30: 0.5."""
        return self.after / self.before - 1 if self.before > 0 else math.inf if self.after > 0 else 0.0


def theil_sen(x: Values, y: Values) -> tuple[float, float]:
    """Slope and intercept: the median slope of all pairs, and the median of y - slope x. Longer series are reduced first.

    Source: P. K. Sen, "Estimates of the Regression Coefficient Based on Kendall's Tau", 1968.
    """
    x, y = _reduced(x), _reduced(y)
    first, second = np.triu_indices(len(x), 1)
    steps = x[second] - x[first]
    apart = steps > 0
    if not apart.any():
        return 0.0, float(np.median(y)) if len(y) else 0.0
    slope = float(np.median((y[second] - y[first])[apart] / steps[apart]))
    return slope, float(np.median(y - slope * x))


def mann_kendall(y: Values) -> Trend:
    """Whether the series rises or falls: Mann-Kendall with the variance of Hamed and Rao for correlated values.

    S = Σ sign(y_j - y_i), j > i; its variance is multiplied by
    1 + 2 / (n (n-1) (n-2)) Σ (n-i) (n-i-1) (n-i-2) r_i, with r_i the significant autocorrelations of the ranks without the trend,
    and never by less than 1.
    Source: K. H. Hamed, A. R. Rao, "A modified Mann-Kendall trend test for autocorrelated data", 1998.
    """
    y = _reduced(y)
    n = len(y)
    first, second = np.triu_indices(n, 1)
    s = float(np.sign(y[second] - y[first]).sum())
    _, counts = np.unique(y, return_counts=True)
    ties = float((counts * (counts - 1.0) * (2 * counts + 5)).sum())
    variance = (n * (n - 1) * (2 * n + 5) - ties) / 18
    x = np.arange(n, dtype=np.float64)
    slope, intercept = theil_sen(x, y)
    change = slope * (n - 1) / intercept if intercept > 0 else 0.0
    misfit = float(np.abs(y - slope * x - intercept).mean())
    if variance <= 0:
        return Trend(change, 0.0, misfit)
    variance *= variance_ratio(y - slope * x)
    return Trend(change, (s - math.copysign(1, s)) / math.sqrt(variance) if s else 0.0, misfit)


def variance_ratio(y: Values) -> float:
    """By how much correlation widens the variance of Mann-Kendall's S (Hamed and Rao), at least 1."""
    n = len(y)
    if n < 4:
        return 1.0
    ranks = ranked(y)
    ranks = ranks - ranks.mean()
    total = float(ranks @ ranks)
    if total <= 0:
        return 1.0
    lags = np.arange(1, n - 1)
    r = np.array([ranks[lag:] @ ranks[:-lag] for lag in lags]) / total
    r[np.abs(r) <= 1.96 / math.sqrt(n)] = 0.0
    weights = (n - lags) * (n - lags - 1.0) * (n - lags - 2)
    return max(1.0, 1 + 2 / (n * (n - 1) * (n - 2)) * float(weights @ r))


def pettitt(y: Values) -> Shift:
    """The most likely place of one shift of the level, and whether it is significant at 1 %.

    U_t = 2 Σ rank(y_i, i < t) - t (n + 1); max |U| is divided by the root of `variance_ratio` of the series without the shift.
    Source: A. N. Pettitt, "A Non-Parametric Approach to the Change-Point Problem", 1979.
    """
    n = len(y)
    if n < 2:
        return Shift(0, math.nan, math.nan, is_significant=False, misfit=math.inf)
    u = 2 * np.cumsum(ranked(y))[:-1] - np.arange(1, n) * (n + 1)
    at = int(np.argmax(np.abs(u))) + 1
    before, after = float(np.median(y[:at])), float(np.median(y[at:]))
    levelled = np.concatenate((y[:at] - before, y[at:] - after))
    largest = abs(float(u[at - 1])) / math.sqrt(variance_ratio(levelled))
    is_significant = n >= PETTITT_FEWEST and largest >= _critical(n)
    return Shift(at, before, after, is_significant, float(np.abs(levelled).mean()))


def _critical(n: int) -> float:
    if n < PETTITT_FEWEST + len(PETTITT):
        return float(PETTITT[n - PETTITT_FEWEST])
    return math.sqrt(math.log(2 / ALPHA) * (n**3 + n**2) / 6)


def ranked(y: Values) -> Values:
    """Ranks from 1; equal values share their mean rank."""
    _, places, counts = np.unique(y, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[places])


def autocorrelation_time(y: Values) -> float:
    """The integrated autocorrelation time, in values: n correlated values are worth n / this many independent ones. At least 1.

    1 + 2 Σ r_k, up to the first lag over five times the sum so far. Independent values: about 1; AR(1) with r = 0.8: 9.
    Source: A. Sokal, "Monte Carlo Methods in Statistical Mechanics", 1997.
    """
    group = max(1, len(y) // 4096)
    y = y[: len(y) // group * group].reshape(-1, group).mean(axis=1)
    n, scale = len(y), float(np.abs(y).max(initial=0.0))
    y = y - y.mean() if n else y
    size = 1 << (2 * n).bit_length()
    spectrum = np.fft.rfft(y, size)
    covariance = np.fft.irfft(spectrum * np.conj(spectrum), size)[:n]
    if n < 2 or covariance[0] <= n * (1e-6 * scale) ** 2:  # constant but for rounding
        return 1.0
    summed = 2 * np.cumsum(covariance / covariance[0]) - 1
    enough = np.flatnonzero(np.arange(n) >= 5 * summed)
    return max(1.0, float(summed[enough[0] if len(enough) else n - 1])) * group


def slope_interval(x: Values, y: Values, *, resamples: int = 400, seed: int = 0) -> tuple[float, float]:
    """95 % interval of Theil-Sen's slope: the residuals are drawn again in blocks of neighbours, so that their correlation stays.

    Blocks of max(n^(1/3), twice the autocorrelation time) values, at most n / 4.
    """
    x, y = _reduced(x), _reduced(y)
    n = len(y)
    slope, intercept = theil_sen(x, y)
    fitted = intercept + slope * x
    residuals = y - fitted
    length = int(min(max(n ** (1 / 3), 2 * autocorrelation_time(residuals), 1), max(1, n / 4)))
    rng = np.random.default_rng(seed)
    begins = rng.integers(0, n - length + 1, (resamples, -(-n // length)))
    drawn = residuals[(begins[:, :, None] + np.arange(length)).reshape(resamples, -1)[:, :n]]
    first, second = np.triu_indices(n, 1)
    steps = x[second] - x[first]
    apart = steps > 0
    first, second, steps = first[apart], second[apart], steps[apart]
    slopes = np.array([np.median((each[second] - each[first]) / steps) for each in fitted + drawn])
    low, high = np.percentile(slopes, (2.5, 97.5))
    return float(low), float(high)


def _reduced(y: Values) -> Values:
    """Medians of neighbours, so that at most `MOST_VALUES` remain."""
    if len(y) <= MOST_VALUES:
        return y
    edges = np.linspace(0, len(y), MOST_VALUES + 1).astype(np.int64)
    return np.array([np.median(y[begin:end]) for begin, end in pairwise(edges)])
