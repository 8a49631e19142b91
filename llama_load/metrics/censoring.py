"""How far requests that were cut off at the end of a time would move the figures of those that were not.

A request that was in flight for 8 s when its time was over has an E2EL of more than 8 s: it is censored. Leaving it out makes
latencies look too good, since slow requests are cut most often. The product-limit estimate keeps it: with n requests whose
latency is not below t, an answer at t multiplies the share S(t) of slower ones by 1 - 1/n, a cut request only lowers n.

Source: E. L. Kaplan, P. Meier, "Nonparametric Estimation from Incomplete Observations", 1958; the mean as B. Efron completed it
(the largest value counts as an answer), which is a lower bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from llama_load.metrics.statistics import is_enough


class ProductLimit:
    """The estimate from latencies that are known and from times after which requests were cut, both in the same unit."""

    def __init__(self, known: NDArray[np.float64], cut: NDArray[np.float64]) -> None:
        values = np.concatenate((known, cut))
        is_cut = np.concatenate((np.zeros(len(known), dtype=np.bool_), np.ones(len(cut), dtype=np.bool_)))
        order = np.lexsort((is_cut, values))  # at one instant, answers come before cuts
        at_risk = len(values) - np.arange(len(values))
        self._values = values[order]
        self._slower = np.cumprod(np.where(is_cut[order], 1.0, 1.0 - 1.0 / at_risk))

    @property
    def mean(self) -> float:
        """The area under S(t); a lower bound where the largest value is one that was cut."""
        before = np.concatenate(([1.0], self._slower[:-1]))
        return float(np.sum(before * np.diff(self._values, prepend=0.0)))

    def percentile(self, p: float) -> float:
        """The smallest t with S(t) <= 1 - p/100; infinite where so many were cut that it is not known."""
        place = int(np.argmax(self._slower <= 1 - p / 100 + 1e-12)) if len(self._slower) else 0
        known = bool(len(self._slower)) and self._slower[place] <= 1 - p / 100 + 1e-12
        return float(self._values[place]) if known else math.inf


def cut_shift(
    answered: NDArray[np.float64], also_known: NDArray[np.float64], cut: NDArray[np.float64], percentiles: Sequence[float]
) -> float:
    """The largest relative change of the mean, the median and the reported percentiles of `answered` when what was cut is counted:
    0 none, 0.1 a tenth, infinite where a percentile is not known any more.

    `also_known` are latencies of cut requests that were complete before the cut (TTFT), `cut` the times after which the
    others were cut. Ten answers of 10 s and one cut after 40 s: the mean grows from 10 to at least 12.7 s, 0.27.
    Percentiles that the sample is too small for are left out.
    """
    answered = answered[~np.isnan(answered)]
    if not len(cut) + len(also_known):
        return 0.0
    if not len(answered):
        return math.inf
    plain = ProductLimit(answered, np.zeros(0))
    full = ProductLimit(np.concatenate((answered, also_known)), cut)
    reported = [p for p in dict.fromkeys((50.0, *percentiles)) if is_enough(len(answered), p)]
    pairs = [(plain.mean, full.mean), *((plain.percentile(p), full.percentile(p)) for p in reported)]
    return max(abs(after - before) / before if before > 0 else 0.0 for before, after in pairs)
