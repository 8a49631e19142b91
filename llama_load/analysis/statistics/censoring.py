"""How much the latencies would change if requests cut off at the end of a run or stage were
counted.

A request that was in flight for 8 s when the run ended has an E2EL of more than 8 s: it is
censored. Leaving it out makes latencies look too good, because slow requests are cut most often.
The product-limit (Kaplan-Meier) estimate keeps it: with n requests of latency t or more, an answer
at t multiplies the share S(t) of slower requests by 1 - 1/n; a cut request only lowers n.

Source: E. L. Kaplan, P. Meier, "Nonparametric Estimation from Incomplete Observations", 1958; the
mean with Efron's completion (the largest value counts as an answer), which is a lower bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from llama_load.run_folder.arithmetic.percentiles import is_enough


class ProductLimit:
    """The estimate from known latencies and from the times after which requests were cut, in the
    same unit."""

    def __init__(self, known: NDArray[np.float64], cut: NDArray[np.float64]) -> None:
        values = np.concatenate((known, cut))
        is_cut = np.concatenate(
            (np.zeros(len(known), dtype=np.bool_), np.ones(len(cut), dtype=np.bool_))
        )
        order = np.lexsort((is_cut, values))  # at one instant, answers come before cuts
        at_risk = len(values) - np.arange(len(values))
        self._values = values[order]
        self._slower = np.cumprod(np.where(is_cut[order], 1.0, 1.0 - 1.0 / at_risk))

    @property
    def mean(self) -> float:
        """The area under S(t); a lower bound where the largest value is a cut one."""
        before = np.concatenate(([1.0], self._slower[:-1]))
        return float(np.sum(before * np.diff(self._values, prepend=0.0)))

    def percentile(self, p: float) -> float:
        """The smallest t with S(t) <= 1 - p/100; infinite where too many requests were cut to know
        it."""
        is_reached = self._slower <= 1 - p / 100 + 1e-12
        if not is_reached.any():
            return math.inf
        return float(self._values[int(np.argmax(is_reached))])


def cut_shift(
    answered: NDArray[np.float64],
    also_known: NDArray[np.float64],
    cut: NDArray[np.float64],
    percentiles: Sequence[float],
) -> float:
    """The largest relative change of mean, median and reported percentiles of `answered` when cut
    requests are counted.

    0: no change; 0.1: 10 %; infinite: a percentile becomes unknown. `also_known` are latencies of
    cut requests that were complete before the cut (TTFT); `cut` are the times after which the
    others were cut. Percentiles with too few values are left out. Ten answers of 10 s and one cut
    after 40 s: the mean grows from 10 to at least 12.7 s, 0.27.
    """
    answered = answered[~np.isnan(answered)]
    if not len(cut) + len(also_known):
        return 0.0
    if not len(answered):
        return math.inf
    plain = ProductLimit(answered, np.zeros(0))
    full = ProductLimit(np.concatenate((answered, also_known)), cut)
    reported = [
        p for p in dict.fromkeys((50.0, *percentiles)) if is_enough(len(answered), p)
    ]
    pairs = [
        (plain.mean, full.mean),
        *((plain.percentile(p), full.percentile(p)) for p in reported),
    ]
    return max(
        abs(after - before) / before if before > 0 else 0.0 for before, after in pairs
    )
