"""A mean of independent values with its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_load.run_folder.arithmetic.student_t import t_quantile

WITHIN_95 = 0.975


@dataclass(frozen=True, slots=True)
class Estimate:
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


def mean_with_interval(
    values: Sequence[float] | NDArray[np.float64],
) -> Estimate | None:
    """The mean of independent values with its interval of 95 %; None without a value."""
    known = np.asarray(values, dtype=np.float64)
    known = known[np.isfinite(known)]
    count = len(known)
    if not count:
        return None

    mean = float(known.mean())
    if count < 2:
        return Estimate(mean, None)
    error = float(known.std(ddof=1)) / math.sqrt(count)
    return Estimate(mean, t_quantile(WITHIN_95, count - 1) * error)
