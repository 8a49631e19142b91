"""The share of good requests as a curve that never rises with the load, and where it crosses the share asked for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

# Pooled shares that are exactly the share of the goal come out below it by the rounding of sums.
ROUNDING = 1e-9
Floats = NDArray[np.float64]


def falling(shares: Floats, weights: Floats) -> Floats:
    """The curve that never rises and is closest to `shares`, by weighted least squares: pool adjacent violators.

    Shares 1, 0.8, 0.9 of equal weight: 1, 0.85, 0.85.
    Source: Barlow and others, Statistical Inference under Order Restrictions (1972).
    """
    values: list[float] = []
    sizes: list[float] = []
    lengths: list[int] = []
    for share, weight in zip(shares.tolist(), weights.tolist(), strict=True):
        values.append(share)
        sizes.append(weight)
        lengths.append(1)
        while len(values) > 1 and values[-2] < values[-1]:
            total = sizes[-2] + sizes[-1]
            values[-2:] = [(values[-2] * sizes[-2] + values[-1] * sizes[-1]) / total]
            sizes[-2:], lengths[-2:] = [total], [lengths[-2] + lengths[-1]]
    return np.repeat(values, lengths)


def crossing(levels: Floats, fitted: Floats, share: float) -> float | None:
    """The highest load at which the curve is at least `share`, by linear interpolation; None if it is nowhere. At the last level if
    it is everywhere. Levels 8, 10 with shares 1 and 0.8 and 0.9 asked for: 9.0."""
    above = np.flatnonzero(fitted >= share - ROUNDING)
    if not len(above):
        return None
    last = int(above[-1])
    if last == len(levels) - 1:
        return float(levels[last])
    step = float(fitted[last] - fitted[last + 1])
    return float(levels[last] + (levels[last + 1] - levels[last]) * (fitted[last] - share) / step)


def rises(levels: Sequence[float], shares: Sequence[float], errors: Sequence[float]) -> list[float]:
    """Levels whose share is significantly (3 standard errors of the difference) higher than that of some lower level."""
    merged = []
    for place, level in enumerate(levels):
        if any(
            shares[place] - shares[before] > 3 * float(np.hypot(errors[place], errors[before])) and shares[place] > shares[before]
            for before in range(place)
        ):
            merged.append(level)
    return merged
