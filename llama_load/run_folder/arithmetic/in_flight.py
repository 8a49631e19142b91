"""How many requests were in flight."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def in_flight_at(
    started: NDArray[Any], ended: NDArray[Any], at: NDArray[Any]
) -> NDArray[np.float64]:
    """How many requests had started before each instant and not ended by it. Three of 2 s, at their
    starts 0, 1 and 5: 0, 1, 0."""
    begun = np.searchsorted(np.sort(started), at)
    return (begun - np.searchsorted(np.sort(ended), at, side="right")).astype(
        np.float64
    )
