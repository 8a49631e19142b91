"""Conversions between the package's units: integer ns for instants, float ms for latencies; bytes
as GiB."""

from __future__ import annotations

import math
from typing import Any

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
MIB = 1 << 20  # bytes
GIB = 1 << 30  # bytes


def ns_to_ms(ns: int) -> float:
    """Nanoseconds to milliseconds. 1_500_000 -> 1.5."""
    return ns / NS_PER_MS


def ns_to_s(ns: int) -> float:
    """Nanoseconds to seconds. 1_500_000_000 -> 1.5."""
    return ns / NS_PER_S


def s_to_ns(seconds: float) -> int:
    """Seconds to nanoseconds. 0.25 -> 250_000_000."""
    return round(seconds * NS_PER_S)


def quantity(count: int, one: str, many: str | None = None) -> str:
    """A number with its noun: `1 request`, `3 requests`; `many` is an irregular plural."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def plain_number(value: Any) -> Any:
    """A number as Python's own: numpy's are converted. None: unknown, or not a number (NaN).
    `np.float64(2)` -> 2.0."""
    number = value.item() if hasattr(value, "item") else value
    is_nan = isinstance(number, float) and math.isnan(number)
    return None if is_nan else number
