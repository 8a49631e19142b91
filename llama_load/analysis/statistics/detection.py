"""Detection limits of changes: how large a change would have been named in a sample like this one.

A server that is f times as slow (or as fast) in a third of the time: `find_change` sees the step ln
f against its standard error, `is_confirmed` sees it in the ranks of the requests. Both must, with a
probability of 95 %. Normal approximations; the simulation `benchmarks.steadiness detection` plants
changes of this size into queues and counts how many are named.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist

import numpy as np

from llama_load.analysis.statistics.changes import (
    FEWEST_SLICES,
    LARGEST_T,
    LEAST_SD,
    LEAST_Z,
    LEAST_Z_OF_WAITS,
    WAITS_FACTOR,
    correlation_factor,
)
from llama_load.analysis.statistics.slices import Values

# The standard normal quantile of the probability with which a change is to be named.
SURELY = NormalDist().inv_cdf(0.95)
# The share of the time that differs.
PART = 1 / 3
# The limits are this much larger than the formulas say (of the logarithm): a change does not begin
# at the edge of a slice, requests that meet its begin are slowed down in part, and a change adds to
# the scatter that it is compared with. By simulation.
MARGIN = 1.6
# Changes that are tried, as logarithms: 1 % to 50-fold.
MOST_FACTOR = 50.0
_STEPS = np.linspace(0.01, math.log(MOST_FACTOR), 400)


def least_detected(detects: Mapping[str, float | None]) -> float | None:
    """The smallest detection limit of several series: a server that changed shows in the clearest
    of them first."""
    return min((limit for limit in detects.values() if limit is not None), default=None)


def least_change(levels: Values, values: Values, *, has_waits: bool) -> float | None:
    """The smallest factor of a change in a third of the time that would have been named with 95 %;
    None where even 50 x may not be.

    `levels`: of the slices; `values`: of the requests (none for a rate). 24 slices that scatter by
    5 % without correlation: the standard error of the step is 5 % x sqrt(1/8 + 1/16) = 2.2 %, so
    1.6 x (5.41 + 1.64) x 2.2 % = 24 %: 1.28 x.
    """
    steps = [_by_slices(levels, has_waits=has_waits)]
    if len(values):
        steps.append(_by_ranks(values, has_waits=has_waits))
    known = [step for step in steps if step is not None]
    if len(known) < len(steps):
        return None
    factor = math.exp(MARGIN * max(known))
    return factor if factor <= MOST_FACTOR else None


def _by_slices(levels: Values, *, has_waits: bool) -> float | None:
    """The logarithm of the least change for `find_change`."""
    known = levels[np.isfinite(levels) & (levels > 0)]
    count = len(known)
    if count < FEWEST_SLICES:
        return None
    logs = np.log(known)
    residuals = logs - logs.mean()
    variance = max(
        float(residuals @ residuals) / (count - 1), LEAST_SD**2
    ) * correlation_factor(residuals)
    inside = max(2.0, PART * count)
    error = math.sqrt(variance * (1 / inside + 1 / (count - inside)))
    least = LARGEST_T[count - FEWEST_SLICES] * (WAITS_FACTOR if has_waits else 1.0)
    return (least + SURELY) * error


def _by_ranks(values: Values, *, has_waits: bool) -> float | None:
    """The logarithm of the least change for `is_confirmed`: the probability P that a request inside
    is slower than one outside is Phi(ln f / (s sqrt 2)) with s the scatter of the logarithms, and
    the mean of z is (2 P - 1) x its largest value."""
    logs = np.log(np.maximum(values, 1e-3))
    scatter = max(float(logs.std()), 1e-6)
    inside = PART * len(logs)
    largest = math.sqrt(3 * inside * (len(logs) - inside) / (len(logs) + 1))
    least = LEAST_Z_OF_WAITS if has_waits else LEAST_Z
    normal = NormalDist()
    for step in _STEPS:
        above = normal.cdf(step / (scatter * math.sqrt(2)))
        spread = min(1.0, 2 * math.sqrt(above * (1 - above)))
        if (2 * above - 1) * largest - SURELY * spread >= least:
            return float(step)
    return None
