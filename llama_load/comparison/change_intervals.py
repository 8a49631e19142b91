"""The uncertainty of a difference between two sides, from the scatter of their repeats.

The scatter within a run says nothing about the next run: caches, clocks, neighbours and temperature drift between runs. So
everything here is computed from one value per run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from llama_load.metrics.statistics import CONFIDENCE

# Least relative standard deviation between runs that is believed: identical values are copies or rounded, not exact.
LEAST_SPREAD = 0.001
# Shares of comparisons for which `found_from` is given.
POWERS = (0.95, 0.8)
MOST_LOG = 700.0  # of a ratio: exp of more is no float
MOST_RUNS = 1000


@dataclass(frozen=True, slots=True)
class Ratio:
    """The ratio of two sides' means, B / A, and its Welch interval. `log`: its logarithm, `error`: the standard error of that,
    `freedom`: degrees of freedom."""

    log: float
    error: float
    freedom: float

    @property
    def ratio(self) -> float:
        """B / A."""
        return math.exp(self.log)

    @property
    def interval(self) -> tuple[float, float]:
        """95 % confidence interval of the ratio."""
        return math.exp(self.log - self.reach), math.exp(min(self.log + self.reach, MOST_LOG))

    @property
    def reach(self) -> float:
        """Half the width of the interval of the logarithm."""
        return t_quantile(1 - (1 - CONFIDENCE) / 2, self.freedom) * self.error

    def p_value(self) -> float:
        """Two-sided p of "the ratio is 1"."""
        return min(1.0, 2 * t_tail(abs(self.log) / self.error, self.freedom))

    def found_from(self, power: float, judged: int = 1, limit: float = 1.0) -> float:
        """The least ratio that would have been found beyond `limit` with this power, at this scatter and number of runs.

        exp(|ln limit| + (t(1 - 2.5 % / judged) + t(power)) * error), by Student's t with the same degrees of freedom. `judged`: how
        many differences are judged together; each is held to its share of the 5 % (Bonferroni), so Holm finds no less. Exact for
        normal logarithms that scatter alike on both sides: had this ratio been planted into runs with the scatter that was seen,
        the test would have found it in `power` of such comparisons. Checked by benchmarks/power.py.
        """
        significance = (1 - CONFIDENCE) / 2 / judged
        steps = t_quantile(1 - significance, self.freedom) + t_quantile(power, self.freedom)
        return math.exp(min(abs(math.log(limit)) + steps * self.error, MOST_LOG))

    def runs_for(self, limit: float, runs: tuple[int, int]) -> int | None:
        """How many runs a side would have an interval no wider than the distance to `limit`, at the scatter of these `runs`; None
        for over 1000."""
        variance = self.error**2 / (1 / runs[0] + 1 / runs[1])
        for count in range(2, MOST_RUNS + 1):
            error = math.sqrt(2 * variance / count)
            if t_quantile(1 - (1 - CONFIDENCE) / 2, 2 * count - 2) * error <= abs(math.log(limit)):
                return count
        return None

    def p_above(self, limit: float) -> float:
        """One-sided p of "the ratio is at most `limit`": small where it is larger with confidence."""
        return t_tail((self.log - math.log(limit)) / self.error, self.freedom)

    def p_below(self, limit: float) -> float:
        """One-sided p of "the ratio is at least `limit`": small where it is smaller with confidence."""
        return t_tail((math.log(limit) - self.log) / self.error, self.freedom)


@dataclass(frozen=True, slots=True)
class RatioWithZeros:
    """The ratio of two sides' means, some of whose values are 0: a goodput that fell from 5 requests/s to none.

    It has no logarithm, so a limit is tested by `other - limit * base` (Fieller). `*_error2`: squares of the means' standard
    errors; `runs`: how many values each mean is of.
    """

    base: float
    other: float
    base_error2: float
    other_error2: float
    runs: tuple[int, int]

    @property
    def ratio(self) -> float | None:
        """B / A; None where A is 0."""
        return self.other / self.base if self.base else None

    @property
    def interval(self) -> None:
        """Not given: it may have no end."""

    def p_value(self) -> float:
        """Two-sided p of "the means are equal"."""
        return min(1.0, 2 * min(self.p_above(1.0), self.p_below(1.0)))

    def p_above(self, limit: float) -> float:
        """See `Ratio.p_above`."""
        base_error2 = self.base_error2 * limit * limit
        error2 = base_error2 + self.other_error2
        if not error2:  # nothing but zeros
            return 0.5
        freedom = error2**2 / (base_error2**2 / (self.runs[0] - 1) + self.other_error2**2 / (self.runs[1] - 1))
        return t_tail((self.other - limit * self.base) / math.sqrt(error2), freedom)

    def p_below(self, limit: float) -> float:
        """See `Ratio.p_below`."""
        return 1 - self.p_above(limit)


def ratio_of(base: Sequence[float], other: Sequence[float]) -> Ratio | RatioWithZeros | None:
    """The ratio of means other / base of values that are not negative, one per run, by Welch's t-test on its logarithm.

    Speeds scatter in proportion: the variance of ln(mean) is (standard deviation / mean)^2 / n (delta method). Degrees of freedom
    after Welch and Satterthwaite, so neither side's scatter is taken for the other's. With a value of 0 the means are tested
    without logarithms. None with fewer than two runs a side, or with a negative value. Source: Welch, Biometrika 34 (1947).
    """
    if min(len(base), len(other)) < 2 or min(*base, *other) < 0:
        return None
    if not min(*base, *other):
        return _with_zeros(base, other)
    mean_a, part_a = _mean_and_error2(base)
    mean_b, part_b = _mean_and_error2(other)
    error2 = part_a + part_b
    freedom = error2**2 / (part_a**2 / (len(base) - 1) + part_b**2 / (len(other) - 1))
    return Ratio(math.log(mean_b / mean_a), math.sqrt(error2), freedom)


def _mean_and_error2(values: Sequence[float]) -> tuple[float, float]:
    """Their mean, and the square of its relative standard error."""
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value / mean - 1) ** 2 for value in values) / (len(values) - 1)
    return mean, max(variance, LEAST_SPREAD**2) / len(values)


def _with_zeros(base: Sequence[float], other: Sequence[float]) -> RatioWithZeros:
    mean_a, mean_b = (math.fsum(values) / len(values) for values in (base, other))
    least = (LEAST_SPREAD * max(mean_a, mean_b)) ** 2

    def error2(values: Sequence[float], mean: float) -> float:
        variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
        return max(variance, least) / len(values)

    return RatioWithZeros(mean_a, mean_b, error2(base, mean_a), error2(other, mean_b), (len(base), len(other)))


def holm(p_values: Sequence[float]) -> list[float]:
    """p values adjusted for their number (Holm): below 5 % means real, with at most 5 % for one false alarm among all.

    The smallest is multiplied by their number n, the next by n - 1, …, and none falls below the one before it.
    [0.01, 0.04, 0.03] -> [0.03, 0.06, 0.06]. Source: Holm, Scand. J. Statist. 6 (1979).
    """
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        largest = max(largest, min(1.0, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = largest
    return adjusted


def t_tail(t: float, freedom: float) -> float:
    """P(T > t) of Student's t distribution. t_tail(2.306, 8) = 0.025."""
    half = 0.5 * _incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5)
    return half if t >= 0 else 1 - half


def t_quantile(probability: float, freedom: float) -> float:
    """The value that T exceeds with 1 - probability (0.5 or more). t_quantile(0.975, 8) = 2.306. By bisection of `t_tail`."""
    low, high = 0.0, 1.0
    while t_tail(high, freedom) > 1 - probability and high < 1e12:
        high *= 2
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if t_tail(middle, freedom) > 1 - probability else (low, middle)
    return (low + high) / 2


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularized incomplete beta function I_x(a, b), by Lentz's continued fraction.

    Source: Abramowitz and Stegun 26.5.8; I_x(a, b) = 1 - I_(1-x)(b, a) where the fraction converges slowly.
    """
    if x <= 0 or x >= 1:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    tiny = 1e-300
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d or tiny)
    fraction = d
    for m in range(1, 500):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / ((1 + term * d) or tiny)
            c = (1 + term / c) or tiny
            fraction *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return front * fraction
