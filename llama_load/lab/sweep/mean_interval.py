"""A mean of independent values with its interval."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from llama_load.analysis.statistics.statistics import CONFIDENCE
from llama_load.lab.sweep.estimate import estimate
from llama_load.run_folder.arithmetic.student_t import t_quantile


@dataclass(frozen=True, slots=True)
class MeanInterval:
    """A mean and half the width of its interval; None: too few values for one."""

    mean: float
    half: float | None

    @property
    def low(self) -> float:
        """The interval's lower end; the mean where there is none."""
        return self.mean - (self.half or 0.0)

    @property
    def high(self) -> float:
        """The interval's upper end; the mean where there is none."""
        return self.mean + (self.half or 0.0)


def mean_with_interval(values: Iterable[float]) -> MeanInterval | None:
    """The mean of independent values with its interval of 95 %; None without a value."""
    known = [value for value in values if math.isfinite(value)]
    found = estimate(known)
    if found is None:
        return None
    if found.std is None:
        return MeanInterval(found.mean, None)
    t = t_quantile(1 - (1 - CONFIDENCE) / 2, found.count - 1)
    return MeanInterval(found.mean, t * found.std / math.sqrt(found.count))
