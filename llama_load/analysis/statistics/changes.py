"""Whether a server was the same all the time: the part of a run in which a series differs from the
rest, in either direction."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from llama_load.analysis.statistics.slices import Instants, Slices, Values
from llama_load.analysis.statistics.trend import (
    Z_TREND,
    mann_kendall,
    ranked,
    theil_sen,
)

# Slices of a run: with fewer chance explains any change, more are too small.
FEWEST_SLICES = 8
MOST_SLICES = 24
# A slice shorter than two of the intervals that it averages has nearly the values of its
# neighbours.
INTERVALS_A_SLICE = 2.0
# Requests per slice, on average.
REQUESTS_A_SLICE = 4
# The shortest part that can differ, in slices, and the shortest rest.
SHORTEST = 2
# Up to this share of the time, the part before a single change is a slow (or fast) start.
LONGEST_START = 0.4
# Differences of logarithms below this are noise of a clock: a part must not be called different
# because the rest is exactly equal.
LEAST_SD = 0.02
# Of the rank-sum test between the requests in the part and the others.
LEAST_Z = 3.3
LEAST_Z_OF_WAITS = 4.5
WAITS_FACTOR = 1.3
# So many slices that rise (or fall) as steadily as this, by Kendall's tau, have changed, on whatever
# curve. By chance: none of 3000 series of independent values, of AR(1) with r = 0.6 4 of 1000 (12
# slices) or none (24).
STEADY = 0.8
FEWEST_STEADY = 12
# 99.8 % quantiles of the largest t of all parts of 8, 9, … 24 independent normal slices, from
# 100,000 series each.
# fmt: off
LARGEST_T = (8.31, 7.65, 7.13, 7.04, 6.65, 6.4, 6.14, 6.05, 5.97, 5.83, 5.73, 5.72, 5.6, 5.51, 5.5, 5.49, 5.41)
# fmt: on


@dataclass(frozen=True, slots=True)
class Change:
    """A part of the time in which a series differed from the rest; or an even change over all of
    it, from `outside` to `inside`."""

    begin_ns: int
    end_ns: int
    inside: float  # the level there, in its unit
    outside: float  # the level of the rest
    at_begin: bool  # the part begins with the time looked at
    at_end: bool  # it ends with that time; both: an even change

    @property
    def factor(self) -> float:
        """Inside / outside."""
        return self.inside / self.outside if self.outside > 0 else math.inf

    @property
    def size(self) -> float:
        """The factor, or its inverse: at least 1, whichever direction."""
        return max(self.factor, 1 / self.factor) if self.factor > 0 else math.inf


def slices_of(
    begin_ns: int, end_ns: int, from_ns: Instants, to_ns: Instants
) -> Slices | None:
    """Slices for values that belong to these intervals; None: too few."""
    if not len(from_ns):
        return None
    lasted = max(1.0, float(np.median(to_ns - from_ns)))
    count = min(
        MOST_SLICES,
        int((end_ns - begin_ns) / lasted / INTERVALS_A_SLICE),
        len(from_ns) // REQUESTS_A_SLICE,
    )
    return Slices(begin_ns, end_ns, count) if count >= FEWEST_SLICES else None


def find_change(
    slices: Slices, series: Values, *, has_waits: bool = False
) -> Change | None:
    """The part whose mean logarithm differs most from the rest's, if that is significant.

    For each part of at least 2 slices (with a rest of at least 2), t = |mean inside - mean outside|
    / its standard error, from the scatter within both and its correlation from slice to slice; the
    largest must exceed `LARGEST_T`, which allows for the choice of the part; 1.3 x as much for a
    series with `has_waits` (see `is_confirmed`). Of a single change, the part before it is named
    where it is less than 40 % of the time, else the part after it. Slices without a value are left
    out.
    """
    known = np.flatnonzero(np.isfinite(series) & (series > 0))
    count = len(known)
    if count < FEWEST_SLICES:
        return None
    logs = np.log(series[known])
    first, last = (
        grid.ravel()
        for grid in np.meshgrid(
            np.arange(count), np.arange(1, count + 1), indexing="ij"
        )
    )
    inside = last - first
    allowed = (inside >= SHORTEST) & (count - inside >= SHORTEST)
    first = first[allowed]
    last = last[allowed]
    inside = inside[allowed]
    summed = np.concatenate(([0.0], np.cumsum(logs)))
    within = summed[last] - summed[first]
    steps = within / inside - (summed[-1] - within) / (count - inside)
    scale = 1 / inside + 1 / (count - inside)
    best = int(np.argmax(steps**2 / scale))
    begin = int(first[best])
    end = int(last[best])
    step = float(steps[best])
    is_in = np.zeros(count, dtype=np.bool_)
    is_in[begin:end] = True
    residuals = logs - np.where(is_in, logs[is_in].mean(), logs[~is_in].mean())
    variance = max(
        float(residuals @ residuals) / (count - 2), LEAST_SD**2
    ) * correlation_factor(residuals)
    least = LARGEST_T[count - FEWEST_SLICES] * (WAITS_FACTOR if has_waits else 1.0)
    if abs(step) <= least * math.sqrt(variance * float(scale[best])):
        return None
    if begin == 0 and end > LONGEST_START * count:
        begin = end
        end = count
        is_in = ~is_in
    elif end == count and begin <= LONGEST_START * count:
        is_in = ~is_in
        end = begin
        begin = 0
    return Change(
        slices.edge_ns(int(known[begin]) if begin else 0),
        slices.edge_ns(int(known[end]) if end < count else slices.count),
        float(np.exp(logs[is_in].mean())),
        float(np.exp(logs[~is_in].mean())),
        at_begin=begin == 0,
        at_end=end == count,
    )


def find_trend(
    slices: Slices, series: Values, *, has_waits: bool = False
) -> Change | None:
    """An even change over all the time, by Theil-Sen's slope, if it is significant by Mann-Kendall
    (1 %; with waits |z| > 3.3).

    That test takes the distance of a curve from its line for correlation, and saw nothing in 24
    slices that rose one by one. So slices without waits, which no queue makes rise together, are
    also believed if nine of ten pairs are in order.
    """
    known = np.flatnonzero(np.isfinite(series) & (series > 0))
    if len(known) < FEWEST_SLICES:
        return None
    levels = series[known]
    trend = mann_kendall(levels)
    is_steady = len(levels) >= FEWEST_STEADY and abs(trend.tau) >= STEADY
    is_on_a_curve = is_steady and not has_waits
    if abs(trend.z) <= (LEAST_Z if has_waits else Z_TREND) and not is_on_a_curve:
        return None
    slope, intercept = theil_sen(known.astype(np.float64), levels)
    least = float(levels.min())  # a line may cross zero
    begin = max(least, intercept)
    end = max(least, intercept + slope * (slices.count - 1))
    return Change(
        slices.begin_ns, slices.end_ns, end, begin, at_begin=True, at_end=True
    )


def is_confirmed(
    change: Change, values: Values, middle_ns: Instants, *, has_waits: bool = False
) -> bool:
    """Whether the requests with their middle in the part differ from the others, in the same
    direction: rank-sum test, |z| > 3.3. Of an even change, those of the second half of the time
    from those of the first. `has_waits`: the values contain waits in a queue, which are long for
    many neighbours at once; then |z| > 4.5.

    A single long request fills several slices alone; four that all differ from 80 others are the
    fewest that pass. Source: H. B. Mann, D. R. Whitney, "On a Test of Whether one of Two Random
    Variables is Stochastically Larger", 1947.
    """
    is_even = change.at_begin and change.at_end
    begin_ns = (change.begin_ns + change.end_ns) // 2 if is_even else change.begin_ns
    is_in = (middle_ns >= begin_ns) & (middle_ns < change.end_ns)
    m = int(is_in.sum())
    n = int((~is_in).sum())
    if not m or not n:
        return False
    ranks = float(ranked(values)[is_in].sum())
    above = ranks - m * (m + 1) / 2 - m * n / 2
    z = above / math.sqrt(m * n * (m + n + 1) / 12)
    if change.factor <= 1:
        z = -z
    return z > (LEAST_Z_OF_WAITS if has_waits else LEAST_Z)


def correlation_factor(residuals: Values) -> float:
    """By how much the correlation of neighbours widens the variance of a mean: (1 + r) / (1 - r), r
    of lag 1, from 0 to 0.7.

    The fit takes a part of the correlation with it: about 2 / n, which is added again."""
    total = float(residuals @ residuals)
    if total <= 0:
        return 1.0
    of_fit = float(residuals[1:] @ residuals[:-1]) / total
    r = min(0.7, max(0.0, of_fit + 2 / len(residuals)))
    return (1 + r) / (1 - r)
