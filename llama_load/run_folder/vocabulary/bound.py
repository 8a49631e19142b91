"""By how much a figure may be off."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bound:
    """By how much the figures that a check spoils are off, at most: latencies are too large by up to
    `ms`, rates too low by up to `ratio` of themselves."""

    ms: float = 0.0
    ratio: float = 0.0

    def __add__(self, other: Bound) -> Bound:
        return Bound(self.ms + other.ms, self.ratio + other.ratio)

    def around(self, key: str, value: float) -> tuple[float, float]:
        """The lowest and the highest number that the figure with this key may have: a TTFT of 248
        ms with 40 ms: 208 to 248."""
        if key.endswith("_ms"):
            return max(0.0, value - self.ms), value
        return value, value * (1 + self.ratio)
