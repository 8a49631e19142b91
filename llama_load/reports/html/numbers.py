"""Numbers as people read them."""

from __future__ import annotations

from llama_load.units import decimals_of

NONE = "n/a"


def brief(value: float | None) -> str:
    """Three or more significant digits, two of small ones: 0.0042, 0.123, 4.57, 45.7, 457, 45,678; n/a where it is unknown."""
    if value is None:
        return NONE
    size = abs(value)
    decimals = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 or not size else decimals_of(size, 3)
    return f"{value:,.{decimals}f}"


def milliseconds(value: float | None) -> str:
    """With its unit: 45.7 ms."""
    return NONE if value is None else f"{brief(value)} ms"
