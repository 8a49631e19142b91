"""Tests of a series for a trend and for a shift, and the size of the change: for short series of
bucket medians.

Neighbours in such a series are correlated (requests share a queue), so that the usual tests see
changes where there are none; each test here widens its variance by the correlation that it
measures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from llama_load.run_folder.arithmetic.student_t import t_quantile

Values = NDArray[np.float64]

# Level of both tests.
ALPHA = 0.01
# Two-sided 1 % of the normal distribution.
Z_TREND = 2.576
# Longer series are reduced to medians of neighbours: Theil-Sen compares all pairs.
MOST_VALUES = 200
# Critical values of Pettitt's max |U| at 1 %, for 10, 11, … 40 values, from 400,000 permutations
# each; his formula 2 exp(-6 K² / (n³ + n²)) is far too careful for so few.
PETTITT_FEWEST = 10
# fmt: off
PETTITT = (
    25, 29, 34, 39, 44, 49, 54, 59, 65, 71, 76, 83, 88, 95, 101, 107,
    114, 121, 129, 135, 143, 151, 158, 165, 173, 181, 189, 197, 206, 215, 223,
)
# fmt: on


@dataclass(frozen=True, slots=True)
class Trend:
    """An even change of a series, by Theil-Sen and Mann-Kendall."""

    change: float  # over the whole series, as a share of its level at the begin; 0.1: + 10 %
    z: float  # of Mann-Kendall
    tau: float  # Kendall's: 1 if all pairs rise, -1 if all fall
    misfit: float  # mean absolute distance of the values from the line

    @property
    def is_significant(self) -> bool:
        """Whether the trend is significant at 1 %."""
        return abs(self.z) > Z_TREND


@dataclass(frozen=True, slots=True)
class Shift:
    """A shift of the level of a series."""

    at: int  # the number of the first value after it
    before: float  # median before
    after: float  # median after
    is_significant: bool  # at 1 %
    misfit: float  # mean absolute distance of the values from these levels

    @property
    def change(self) -> float:
        """(after - before) / before. 20 to 30: 0.5."""
        return (
            self.after / self.before - 1
            if self.before > 0
            else math.inf
            if self.after > 0
            else 0.0
        )


def theil_sen(x: Values, y: Values) -> tuple[float, float]:
    """Slope and intercept: the median slope of all pairs, and the median of y - slope x. Longer
    series are reduced first.

    Source: P. K. Sen, "Estimates of the Regression Coefficient Based on Kendall's Tau", 1968.
    """
    x = _reduced(x)
    y = _reduced(y)
    first, second = np.triu_indices(len(x), 1)
    steps = x[second] - x[first]
    apart = steps > 0
    if not apart.any():
        return 0.0, float(np.median(y)) if len(y) else 0.0
    slope = float(np.median((y[second] - y[first])[apart] / steps[apart]))
    return slope, float(np.median(y - slope * x))


def mann_kendall(y: Values) -> Trend:
    """Whether the series rises or falls: Mann-Kendall with the variance of Hamed and Rao for
    correlated values.

    S = Σ sign(y_j - y_i), j > i; its variance is multiplied by 1 + 2 / (n (n-1) (n-2)) Σ (n-i)
    (n-i-1) (n-i-2) r_i, with r_i the significant autocorrelations of the ranks without the trend,
    and never by less than 1. Source: K. H. Hamed, A. R. Rao, "A modified Mann-Kendall trend test
    for autocorrelated data", 1998.
    """
    y = _reduced(y)
    n = len(y)
    first, second = np.triu_indices(n, 1)
    s = float(np.sign(y[second] - y[first]).sum())
    tau = s / max(1, len(first))
    _, counts = np.unique(y, return_counts=True)
    ties = float((counts * (counts - 1.0) * (2 * counts + 5)).sum())
    variance = (n * (n - 1) * (2 * n + 5) - ties) / 18
    x = np.arange(n, dtype=np.float64)
    slope, intercept = theil_sen(x, y)
    change = slope * (n - 1) / intercept if intercept > 0 else 0.0
    misfit = float(np.abs(y - slope * x - intercept).mean())
    if variance <= 0:
        return Trend(change, 0.0, tau, misfit)
    variance *= variance_ratio(y - slope * x)
    z = (s - math.copysign(1, s)) / math.sqrt(variance) if s else 0.0
    return Trend(change, z, tau, misfit)


def variance_ratio(y: Values, *, is_corrected: bool = True) -> float:
    """By how much correlation widens the variance of Mann-Kendall's S (Hamed and Rao), at least 1.

    In short series few correlations are significant alone. So it is also at least that of a series
    whose correlation falls as r^k, with r that of neighbours, corrected for its bias: (n r + 2) /
    (n - 4). On AR(1) series with r = 0.6 and 10 to 40 values, 3 to 5 % are then called trends at a
    level of 1 %, without it 8 to 14 %. `is_corrected` False: without that correction, for Pettitt's
    test, which would miss shifts of a short series.
    """
    n = len(y)
    if n < 6:
        return 1.0
    ranks = ranked(y)
    ranks = ranks - ranks.mean()
    total = float(ranks @ ranks)
    if total <= 0:
        return 1.0
    lags = np.arange(1, n - 1)
    r = np.array([ranks[lag:] @ ranks[:-lag] for lag in lags]) / total
    first = max(0.0, float(r[0]))
    if is_corrected:
        first = _corrected(float(r[0]), n)
    r[np.abs(r) <= 1.96 / math.sqrt(n)] = 0.0
    pairs = (n - lags) * (n - lags - 1.0) * (n - lags - 2)
    weights = pairs * 2 / (n * (n - 1) * (n - 2))
    return max(1.0, 1 + float(weights @ r), 1 + float(weights @ first**lags))


def pettitt(y: Values) -> Shift:
    """The most likely place of one shift of the level, and whether it is significant at 1 %.

    U_t = 2 Σ rank(y_i, i < t) - t (n + 1); max |U| is divided by the root of `variance_ratio` of
    the series without the shift. Source: A. N. Pettitt, "A Non-Parametric Approach to the
    Change-Point Problem", 1979.
    """
    n = len(y)
    if n < 2:
        return Shift(0, math.nan, math.nan, is_significant=False, misfit=math.inf)
    sums = np.cumsum(ranked(y))[:-1]
    u = 2 * sums - np.arange(1, n) * (n + 1)
    at = int(np.argmax(np.abs(u))) + 1
    before = float(np.median(y[:at]))
    after = float(np.median(y[at:]))
    levelled = np.concatenate((y[:at] - before, y[at:] - after))
    largest = abs(float(u[at - 1])) / math.sqrt(
        variance_ratio(levelled, is_corrected=False)
    )
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


def rank_sum_z(values: Values, others: Values) -> float:
    """By how many standard deviations values are above others in rank; independent ones. 5 above
    31: 3.5.

    Source: H. B. Mann, D. R. Whitney, "On a Test of Whether one of Two Random Variables is
    Stochastically Larger", 1947.
    """
    m = len(values)
    n = len(others)
    ranks = ranked(np.concatenate((values, others)))
    own = float(ranks[:m].sum())
    above = own - m * (m + 1) / 2 - m * n / 2
    return float(above / np.sqrt(m * n * (m + n + 1) / 12))


def autocorrelation_time(y: Values) -> float:
    """The integrated autocorrelation time, in values: n correlated values are worth n / this many
    independent ones. At least 1.

    1 + 2 Σ r_k, up to the first lag over five times the sum so far. Independent values: about 1;
    AR(1) with r = 0.8: 9. Source: A. Sokal, "Monte Carlo Methods in Statistical Mechanics", 1997.
    """
    group = max(1, len(y) // 4096)
    whole = len(y) // group * group
    y = y[:whole].reshape(-1, group).mean(axis=1)
    n = len(y)
    scale = float(np.abs(y).max(initial=0.0))
    y = y - y.mean() if n else y
    size = 1 << (2 * n).bit_length()
    spectrum = np.fft.rfft(y, size)
    covariance = np.fft.irfft(spectrum * np.conj(spectrum), size)[:n]
    if n < 2 or covariance[0] <= n * (1e-6 * scale) ** 2:  # constant but for rounding
        return 1.0
    summed = 2 * np.cumsum(covariance / covariance[0]) - 1
    enough = np.flatnonzero(np.arange(n) >= 5 * summed)
    return max(1.0, float(summed[enough[0] if len(enough) else n - 1])) * group


def slope_interval(
    x: Values, y: Values, *, resamples: int = 300, seed: int = 0
) -> tuple[float, float]:
    """95 % interval of Theil-Sen's slope: t x the scatter of the slopes of series whose residuals
    are drawn again in blocks.

    Blocks of neighbours keep their correlation: n^(1/3) (2 r / (1 - r²))^(2/3) values, with r that
    of neighbours, corrected for its bias; what blocks of this length cut off of it is added for an
    AR(1) series, and t has n (1 - r) / (1 + r) - 2 degrees of freedom. 1.15 is from simulations: on
    AR(1) noise with r = 0, 0.5, 0.8 and 24 to 96 values, the interval then holds the truth in 88 to
    97 % (benchmarks/steadiness.py). Source: H. R. Künsch, "The Jackknife and the Bootstrap for
    General Stationary Observations", 1989.
    """
    x = _reduced(x)
    y = _reduced(y)
    n = len(y)
    slope, intercept = theil_sen(x, y)
    residuals = y - intercept - slope * x
    total = float(residuals @ residuals)
    if n < 6 or total <= 0:
        return slope, slope
    r = _corrected(float(residuals[1:] @ residuals[:-1]) / total, n)

    of_correlation = max(1.0, (2 * r / (1 - r * r)) ** (2 / 3))
    length = int(min(of_correlation * n ** (1 / 3), n / 4))
    blocks = -(-n // length)
    begins = np.random.default_rng(seed).integers(0, n, (resamples, blocks))
    places = begins[:, :, None] + np.arange(length)
    rows = places.reshape(resamples, -1)[:, :n] % n

    first, second = np.triu_indices(n, 1)
    steps = x[second] - x[first]
    drawn = [
        np.median((block[second] - block[first]) / steps) for block in residuals[rows]
    ]
    lags = np.arange(1, length)
    kept = 1 + 2 * float(((1 - lags / length) * r**lags).sum())
    whole = (1 + r) / (1 - r)
    half = (
        1.15
        * t_quantile(0.975, max(2.0, n / whole - 2))
        * float(np.std(drawn))
        * math.sqrt(whole / kept * n / (n - 2))
    )
    return slope - half, slope + half


def _corrected(r: float, n: int) -> float:
    """The correlation of neighbours of a series without its trend, without the bias of a short
    series; 0 to 0.9."""
    return min(0.9, max(0.0, (n * r + 2) / (n - 4)))


def _reduced(y: Values) -> Values:
    """Medians of neighbours, so that at most `MOST_VALUES` remain."""
    if len(y) <= MOST_VALUES:
        return y
    edges = np.linspace(0, len(y), MOST_VALUES + 1).astype(np.int64)
    return np.array([np.median(y[begin:end]) for begin, end in pairwise(edges)])
