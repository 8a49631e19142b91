"""Statistics of a sample as vLLM's bench prints them, and confidence intervals of percentiles."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from llama_load.run_folder.arithmetic.percentiles import is_enough

CONFIDENCE = 0.95
Values = NDArray[np.floating[Any]]
_Float = TypeVar("_Float", bound=np.floating[Any])


@dataclass(frozen=True, slots=True)
class Distribution:
    """Statistics of a sample, in its unit; None where it is empty."""

    count: int
    mean: float | None
    median: float | None
    std: float | None
    # 99.0: its value, even if there are too few (see `percentile`)
    percentiles: dict[float, float | None] = field(default_factory=dict)
    # their 95 % confidence intervals (low, high); None: the sample is too small for that end
    intervals: dict[float, tuple[float | None, float | None]] = field(
        default_factory=dict
    )

    def percentile(self, p: float) -> float | None:
        """A reported percentile; None where the sample is too small for it."""
        return self.percentiles[p] if is_enough(self.count, p) else None

    @property
    def lacking(self) -> list[float]:
        """The reported percentiles that the sample is too small for."""
        return [
            p for p in self.percentiles if self.count and not is_enough(self.count, p)
        ]


def known(values: NDArray[_Float]) -> NDArray[_Float]:
    """The values that are not NaN; without a copy where all are known."""
    unknown = np.isnan(values)
    return np.asarray(values[~unknown]) if unknown.any() else values


def mean(values: Values) -> float | None:
    """The mean of the known values; None where none is."""
    values = known(values)
    return float(values.mean()) if len(values) else None


def median(values: Values) -> float | None:
    """The median of the known values; None where none is."""
    values = known(values)
    return float(np.median(values)) if len(values) else None


def total(values: Values) -> float | None:
    """The sum; None where one is unknown (a partial sum is no total), and without any."""
    if not len(values) or np.isnan(values).any():
        return None
    return float(values.sum())


def ratio_of_sums(parts: Values, wholes: Values) -> float | None:
    """Sum of the parts / sum of the wholes; None where one is unknown, or where the wholes are
    0."""
    part = total(parts)
    whole = total(wholes)
    return None if part is None or not whole else part / whole


def sign_test(same: int, pairs: int) -> float:
    """P(at least `same` of `pairs` signs by chance), one-sided. 10 of 10: 0.001."""
    return float(
        sum(math.comb(pairs, count) for count in range(same, pairs + 1)) / 2**pairs
    )


def share_interval(good: int, count: int) -> tuple[float, float]:
    """The 95 % interval of a share of independent trials, of which `good` of `count` were good.

    The ends are the shares with which so many, or so few, would be good in 2.5 % of such samples
    (Clopper and Pearson). 37 of 37: 0.905 to 1.
    """
    low = 0.0
    if good > 0:
        low = _rising_root(lambda share: 1 - _chance_of_less(good, count, share))
    high = 1.0
    if good < count:
        high = 1 - _rising_root(lambda bad: _chance_of_less(good + 1, count, 1 - bad))
    return low, high


def _chance_of_less(good: int, count: int, share: float) -> float:
    """P(K < good) of `count` trials, each of which is good with the chance `share`."""
    first, pmf = _binomial(count, share)
    return float(pmf[: max(0, good - first)].sum())


def _rising_root(chance: Callable[[float], float]) -> float:
    """Where a chance that rises from 0 to 1 is that of one tail, to 1e-9."""
    low = 0.0
    high = 1.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        if chance(middle) < (1 - CONFIDENCE) / 2:
            low = middle
        else:
            high = middle
    return low


def describe(values: Values, percentiles: Sequence[float]) -> Distribution:
    """Statistics as vLLM computes them: numpy mean, median, std (ddof 0), linear percentiles. NaN
    values are left out."""
    values = np.sort(known(values))
    if not len(values):
        return Distribution(
            0,
            None,
            None,
            None,
            dict.fromkeys(percentiles),
            dict.fromkeys(percentiles, (None, None)),
        )
    average = float(np.mean(values))
    std = float(np.std(values))
    intervals = {p: percentile_interval(values, p) for p in percentiles}
    # From here on `values` may lose its order.
    return Distribution(
        count=len(values),
        mean=average,
        median=float(np.median(values, overwrite_input=True)),
        std=std,
        percentiles={
            p: float(np.percentile(values, p, overwrite_input=True))
            for p in percentiles
        },
        intervals=intervals,
    )


def quick_percentile(values: Values, p: float) -> float:
    """A linear percentile of the gaps of one answer: np.percentile takes 17 times as long, which
    for a million answers is minutes."""
    ordered = np.sort(values)
    place = p / 100 * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    step = float(ordered[above]) - float(ordered[below])
    return float(ordered[below]) + (place - below) * step


def percentile_interval(
    ordered: Values, percentile: float
) -> tuple[float | None, float | None]:
    """Distribution-free 95 % confidence interval of a percentile, from order statistics.

    The number of values below the true q-quantile is Binomial(n, q), so the l-th and u-th smallest
    values enclose it with probability P(l <= K < u). We take l as the largest with P(K < l) <= 2.5
    % and u as the smallest with P(K >= u) <= 2.5 %; an end outside the sample is None. 1000 values,
    p99: the 983rd and the 997th. Source: Hahn and Meeker, Statistical Intervals, section 5.2.
    """
    n = len(ordered)
    low, high = interval_ranks(n, percentile)
    return (
        float(ordered[low - 1]) if low >= 1 else None,
        float(ordered[high - 1]) if high <= n else None,
    )


def interval_ranks(n: int, percentile: float) -> tuple[int, int]:
    """The ranks l and u of `percentile_interval`, from 1; below 1 or above n where the sample is
    too small."""
    tail = (1 - CONFIDENCE) / 2
    first, pmf = _binomial(n, percentile / 100)
    cumulative = np.cumsum(pmf)
    # cumulative[i] = P(K <= first + i).
    # largest l with P(K <= l - 1) <= tail
    low = first + int(np.searchsorted(cumulative, tail, side="right"))
    # smallest u with P(K <= u - 1) >= 1 - tail
    high = first + int(np.searchsorted(cumulative, 1 - tail, side="left")) + 1
    return low, high


def _binomial(n: int, q: float) -> tuple[int, NDArray[np.float64]]:
    """P(K = k) for k = first, first + 1, …: ten standard deviations around the mode, all but 1e-15
    of the probability.

    Computed outwards from the mode by the ratio of neighbours, (n - k) q / ((k + 1) (1 - q)).
    """
    if not 0 < q < 1:
        return (0 if q <= 0 else n), np.ones(1)
    mode = min(int((n + 1) * q), n)
    reach = int(10 * math.sqrt(n * q * (1 - q))) + 50
    below = np.arange(mode, max(0, mode - reach), -1)
    above = np.arange(mode, min(n, mode + reach))
    odds = q / (1 - q)
    down = np.cumprod(below / (n - below + 1) / odds)
    up = np.cumprod((n - above) / (above + 1) * odds)
    pmf = np.concatenate((down[::-1], [1.0], up))
    return mode - len(below), pmf / pmf.sum()


def log_chosen(count: int, number: int) -> float:
    """The logarithm of the number of ways to choose so many of `count`."""
    return (
        math.lgamma(count + 1)
        - math.lgamma(number + 1)
        - math.lgamma(count - number + 1)
    )
