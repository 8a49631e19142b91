"""A figure of a table: the mean of one value per run and its scatter.

And the interval of a difference of two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev

from llama_load.analysis.statistics.statistics import CONFIDENCE
from llama_load.run_folder.arithmetic.student_t import t_quantile


@dataclass(frozen=True, slots=True)
class Estimate:
    """The mean of one value per run (or per request of a test).

    With the sample standard deviation (None below two) and the number of values. `reach`: half the
    width of the 95 % interval of a difference.
    """

    mean: float
    std: float | None = None
    count: int = field(default=1, compare=False)
    reach: float | None = None


def estimate(values: Sequence[float]) -> Estimate | None:
    """Mean and sample standard deviation, sqrt(sum((x - mean)^2) / (n - 1)). 1, 2, 3: 2.0 ± 1.0."""
    if not values:
        return None
    std = stdev(values) if len(values) > 1 else None
    return Estimate(fmean(values), std, len(values))


def reach_of_difference(here: Estimate, there: Estimate) -> float | None:
    """Half the width of the 95 % interval of here - there, by Welch.

    None without a scatter of both.
    """
    if here.std is None or there.std is None or min(here.count, there.count) < 2:
        return None
    error2_here = here.std**2 / here.count
    error2_there = there.std**2 / there.count
    error2 = error2_here + error2_there
    if not error2:
        return 0.0

    scatter_here = error2_here**2 / (here.count - 1)
    scatter_there = error2_there**2 / (there.count - 1)
    freedom = error2**2 / (scatter_here + scatter_there)
    return t_quantile(1 - (1 - CONFIDENCE) / 2, freedom) * math.sqrt(error2)


def cost_of(speed: Estimate) -> Estimate:
    """1000 / a speed in tokens/s: ms per token.

    Its deviation is 1000 / mean * (relative deviation of the speed), the delta method.
    """
    cost = 1e3 / speed.mean
    std = None if speed.std is None else cost * speed.std / speed.mean
    return Estimate(cost, std, speed.count)
