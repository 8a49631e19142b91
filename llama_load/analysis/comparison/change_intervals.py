"""The uncertainty of a difference between two sides, from the scatter of their repeats.

The scatter within a run says nothing about the next run: caches, clocks, neighbours and temperature
drift between runs. So everything here is computed from one value per run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from llama_load.analysis.statistics.statistics import CONFIDENCE
from llama_load.run_folder.arithmetic.student_t import t_quantile, t_tail

# Least relative standard deviation between runs that is believed: identical values are copies or
# rounded, not exact.
LEAST_SPREAD = 0.001
# Shares of comparisons for which `found_from` is given.
POWERS = (0.95, 0.8)
MOST_LOG = 700.0  # of a ratio: exp of more is no float
MOST_RUNS = 1000


@dataclass(frozen=True, slots=True)
class Ratio:
    """The ratio of two sides' means, B / A, and its Welch interval.

    `log`: its logarithm, `error`: the standard error of that, `freedom`: degrees of freedom.
    """

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
        low = self.log - self.reach
        high = min(self.log + self.reach, MOST_LOG)
        return math.exp(low), math.exp(high)

    @property
    def reach(self) -> float:
        """Half the width of the interval of the logarithm."""
        below_upper_end = 1 - (1 - CONFIDENCE) / 2
        return t_quantile(below_upper_end, self.freedom) * self.error

    def p_value(self) -> float:
        """Two-sided p of "the ratio is 1"."""
        one_sided = t_tail(abs(self.log) / self.error, self.freedom)
        return min(1.0, 2 * one_sided)

    def found_from(self, power: float, judged: int = 1, limit: float = 1.0) -> float:
        """The least ratio that would have been found beyond `limit` with this power.

        At this scatter and number of runs:
        exp(|ln limit| + (t(1 - 2.5 % / judged) + t(power)) * error), by Student's t with the same
        degrees of freedom. `judged`: how many differences are judged together; each is held to its
        share of the 5 % (Bonferroni), so Holm finds no less. Exact for normal logarithms that
        scatter alike on both sides: had this ratio been planted into runs with the scatter that was
        seen, the test would have found it in `power` of such comparisons. Checked by
        benchmarks/power.py.
        """
        significance = (1 - CONFIDENCE) / 2 / judged
        to_be_significant = t_quantile(1 - significance, self.freedom)
        to_be_found = t_quantile(power, self.freedom)
        steps = to_be_significant + to_be_found
        least_log = abs(math.log(limit)) + steps * self.error

        return math.exp(min(least_log, MOST_LOG))

    def runs_for(self, limit: float, runs: tuple[int, int]) -> int | None:
        """How many runs a side would have an interval no wider than the distance to `limit`.

        At the scatter of these `runs`; None for over 1000.
        """
        base_runs, other_runs = runs
        variance = self.error**2 / (1 / base_runs + 1 / other_runs)
        distance = abs(math.log(limit))
        below_upper_end = 1 - (1 - CONFIDENCE) / 2
        for count in range(2, MOST_RUNS + 1):
            error = math.sqrt(2 * variance / count)
            freedom = 2 * count - 2
            reach = t_quantile(below_upper_end, freedom) * error
            if reach <= distance:
                return count

        return None

    def p_above(self, limit: float) -> float:
        """One-sided p of "the ratio is at most `limit`".

        Small where it is larger with confidence.
        """
        distance = self.log - math.log(limit)
        return t_tail(distance / self.error, self.freedom)

    def p_below(self, limit: float) -> float:
        """One-sided p of "the ratio is at least `limit`".

        Small where it is smaller with confidence.
        """
        distance = math.log(limit) - self.log
        return t_tail(distance / self.error, self.freedom)


@dataclass(frozen=True, slots=True)
class RatioWithZeros:
    """The ratio of two sides' means, some of whose values are 0.

    Such as a goodput that fell from 5 requests/s to none. It has no logarithm, so a limit is tested
    by `other - limit * base` (Fieller). `*_error2`: squares of the means' standard errors; `runs`:
    how many values each mean is of.
    """

    base: float
    other: float
    base_error2: float
    other_error2: float
    runs: tuple[int, int]

    @property
    def ratio(self) -> float | None:
        """B / A; None where A is 0."""
        if not self.base:
            return None
        return self.other / self.base

    @property
    def interval(self) -> None:
        """Not given: it may have no end."""

    def p_value(self) -> float:
        """Two-sided p of "the means are equal"."""
        one_sided = min(self.p_above(1.0), self.p_below(1.0))
        return min(1.0, 2 * one_sided)

    def p_above(self, limit: float) -> float:
        """See `Ratio.p_above`."""
        base_error2 = self.base_error2 * limit * limit
        error2 = base_error2 + self.other_error2
        if not error2:  # nothing but zeros
            return 0.5

        base_runs, other_runs = self.runs
        base_part = base_error2**2 / (base_runs - 1)
        other_part = self.other_error2**2 / (other_runs - 1)
        freedom = error2**2 / (base_part + other_part)
        difference = self.other - limit * self.base
        error = math.sqrt(error2)

        return t_tail(difference / error, freedom)

    def p_below(self, limit: float) -> float:
        """See `Ratio.p_below`."""
        return 1 - self.p_above(limit)


def ratio_of(
    base: Sequence[float], other: Sequence[float]
) -> Ratio | RatioWithZeros | None:
    """The ratio of means other / base by Welch's t-test on its logarithm.

    Of values that are not negative, one per run. Speeds scatter in proportion: the variance of
    ln(mean) is (standard deviation / mean)^2 / n (delta method). Degrees of freedom after Welch and
    Satterthwaite, so neither side's scatter is taken for the other's. With a value of 0 the means
    are tested without logarithms. None with fewer than two runs a side, or with a negative value.
    Source: Welch, Biometrika 34 (1947).
    """
    if min(len(base), len(other)) < 2:
        return None
    least = min(*base, *other)
    if least < 0:
        return None
    if not least:
        return _with_zeros(base, other)

    base_mean, base_error2 = _mean_and_error2(base)
    other_mean, other_error2 = _mean_and_error2(other)
    error2 = base_error2 + other_error2
    base_part = base_error2**2 / (len(base) - 1)
    other_part = other_error2**2 / (len(other) - 1)
    freedom = error2**2 / (base_part + other_part)
    log = math.log(other_mean / base_mean)
    error = math.sqrt(error2)

    return Ratio(log, error, freedom)


def _mean_and_error2(values: Sequence[float]) -> tuple[float, float]:
    """Their mean, and the square of its relative standard error."""
    mean = math.fsum(values) / len(values)
    squares = math.fsum((value / mean - 1) ** 2 for value in values)
    variance = squares / (len(values) - 1)
    variance = max(variance, LEAST_SPREAD**2)

    return mean, variance / len(values)


def _with_zeros(base: Sequence[float], other: Sequence[float]) -> RatioWithZeros:
    base_mean = math.fsum(base) / len(base)
    other_mean = math.fsum(other) / len(other)
    least_deviation = LEAST_SPREAD * max(base_mean, other_mean)
    least_variance = least_deviation**2

    return RatioWithZeros(
        base_mean,
        other_mean,
        _error2(base, base_mean, least_variance),
        _error2(other, other_mean, least_variance),
        (len(base), len(other)),
    )


def _error2(values: Sequence[float], mean: float, least_variance: float) -> float:
    """The square of the standard error of their mean."""
    squares = math.fsum((value - mean) ** 2 for value in values)
    variance = squares / (len(values) - 1)
    variance = max(variance, least_variance)

    return variance / len(values)


def holm(p_values: Sequence[float]) -> list[float]:
    """p values adjusted for their number (Holm).

    Below 5 % means real, with at most 5 % for one false alarm among all. The smallest is multiplied
    by their number n, the next by n - 1, …, and none falls below the one before it.
    [0.01, 0.04, 0.03] -> [0.03, 0.06, 0.06]. Source: Holm, Scand. J. Statist. 6 (1979).
    """
    adjusted = [0.0] * len(p_values)
    ascending = sorted(range(len(p_values)), key=lambda place: p_values[place])

    largest = 0.0
    left = len(p_values)
    for place in ascending:
        p = min(1.0, p_values[place] * left)
        largest = max(largest, p)
        adjusted[place] = largest
        left -= 1

    return adjusted
