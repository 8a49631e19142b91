"""The share of good requests as a curve that never rises with the load.

And where it crosses the share asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

# Pooled shares that are exactly the share of the goal come out below it by the rounding of sums.
ROUNDING = 1e-9
Floats = NDArray[np.float64]


def falling(shares: Floats, weights: Floats) -> Floats:
    """The curve that never rises and is closest to `shares`, by weighted least squares.

    By pooling adjacent violators. Shares 1, 0.8, 0.9 of equal weight: 1, 0.85, 0.85.
    Source: Barlow and others, Statistical Inference under Order Restrictions (1972).
    """
    # Pools of neighbours that have one value.
    values: list[float] = []
    sizes: list[float] = []
    lengths: list[int] = []
    for share, weight in zip(shares.tolist(), weights.tolist(), strict=True):
        values.append(share)
        sizes.append(weight)
        lengths.append(1)

        while len(values) > 1 and values[-2] < values[-1]:
            value = values.pop()
            size = sizes.pop()
            total = sizes[-1] + size
            values[-1] = (values[-1] * sizes[-1] + value * size) / total
            sizes[-1] = total
            length = lengths.pop()
            lengths[-1] += length
    return np.repeat(values, lengths)


def crossing(levels: Floats, fitted: Floats, share: float) -> float | None:
    """The highest load at which the curve is at least `share`, by linear interpolation.

    None if it is nowhere; the last level if it is everywhere. Levels 8, 10 with shares 1 and 0.8
    and 0.9 asked for: 9.0.
    """
    above = np.flatnonzero(fitted >= share - ROUNDING)
    if not len(above):
        return None
    last = int(above[-1])
    if last == len(levels) - 1:
        return float(levels[last])

    fall = float(fitted[last] - fitted[last + 1])
    distance = levels[last + 1] - levels[last]
    return float(levels[last] + distance * (fitted[last] - share) / fall)


def meets(table: Floats, share: float) -> float | None:
    """Where the falling curve meets the share.

    `table`: levels, their requests and good requests; shape (levels, 3).
    """
    if not len(table):
        return None
    levels, counts, good = table.T
    return crossing(levels, falling(good / counts, counts), share)


def rises(batches: Mapping[float, NDArray[np.int64]]) -> list[float]:
    """Levels whose share is significantly higher than that of some lower level.

    Significant are 3 standard errors of the difference. `batches`: requests and good requests of
    each batch, by level in ascending order.
    """
    risen = []
    lower: list[tuple[float, float]] = []  # share and error of the levels before
    for level, of_level in batches.items():
        requests, good = of_level.sum(axis=0)
        share = float(good / requests)
        error = error_of(of_level) if len(of_level) > 1 else 1.0

        if any(
            share - before > 3 * math.hypot(error, its_error)
            for before, its_error in lower
        ):
            risen.append(level)
        lower.append((share, error))
    return risen


def error_of(batches: NDArray[np.int64]) -> float:
    """The standard error of the share of good requests, from the scatter of two batches or more."""
    shares = batches[:, 1] / batches[:, 0]
    return float(shares.std(ddof=1)) / math.sqrt(len(shares))
