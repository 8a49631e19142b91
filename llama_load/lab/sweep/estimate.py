"""A figure of a table: the mean of one value per run, its scatter, and the interval of a difference of two."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev

from llama_load.comparison.change_intervals import t_quantile
from llama_load.metrics.statistics import CONFIDENCE


@dataclass(frozen=True, slots=True)
class Estimate:
    """The mean of one value per run (or per request of a test), its sample standard deviation (None below two), and the number of
    values. `reach`: half the width of the 95 % interval of a difference."""

    mean: float
    std: float | None = None
    count: int = field(default=1, compare=False)
    reach: float | None = None


def estimate(values: Sequence[float]) -> Estimate | None:
    """Mean and sample standard deviation, sqrt(sum((x - mean)^2) / (n - 1)). 1, 2, 3: 2.0 ± 1.0."""
    return Estimate(fmean(values), stdev(values) if len(values) > 1 else None, len(values)) if values else None


def reach_of_cost(here: Estimate, there: Estimate) -> float | None:
    """Half the width of the 95 % interval of 1000 / here - 1000 / there, by Welch; None without a scatter of both.

    The standard error of 1000 / mean is 1000 / mean * (relative standard error of the mean), the delta method.
    """
    errors2 = []
    for each in (here, there):
        if each.std is None or each.count < 2:
            return None
        errors2.append((1e3 / each.mean * each.std / each.mean) ** 2 / each.count)
    error2 = sum(errors2)
    if not error2:
        return 0.0
    freedom = error2**2 / sum(own**2 / (each.count - 1) for own, each in zip(errors2, (here, there), strict=True))
    return t_quantile(1 - (1 - CONFIDENCE) / 2, freedom) * math.sqrt(error2)
