"""Conversions of times, and percentiles."""

from __future__ import annotations

import math
from collections.abc import Sequence

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000


def percentile(values: Sequence[float], percent: float) -> float:
    """By linear interpolation between the two nearest ranks, as numpy's default.

    Of 1, 2, 3, 4 the 50th is 2.5. ValueError: there are no values.
    """
    if not values:
        raise ValueError("a percentile of no values")

    ordered = sorted(values)
    place = percent / 100 * (len(ordered) - 1)
    below = math.floor(place)
    above = math.ceil(place)
    part = place - below
    return ordered[below] + (ordered[above] - ordered[below]) * part


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean; 0 of no values."""
    if not values:
        return 0.0
    return math.fsum(values) / len(values)


def variance(values: Sequence[float]) -> float:
    """The mean squared distance from the mean; 0 of no values."""
    middle = mean(values)
    return mean([(value - middle) ** 2 for value in values])
