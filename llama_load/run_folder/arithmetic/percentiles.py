"""Percentiles: their words, and how many values they need."""

from __future__ import annotations

import math


def least_count(p: float) -> int:
    """How many values a percentile needs so that at least one is beyond it: 100 / (100 - p). p99:
    100, p90: 10, p50: 2.

    With fewer values p99 is close to their maximum.
    """
    return math.ceil(round(100 / min(p, 100 - p), 9))


def is_enough(count: int, p: float) -> bool:
    """Whether `count` values are enough for this percentile."""
    return count >= least_count(p)


def percentile_word(p: float) -> str:
    """The name of a percentile: 99.0 -> "p99", 99.9 -> "p99.9"."""
    return f"p{p:g}"
