"""Empirical distribution functions of samples that may be too large to be sorted in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.statistics.statistics import known

# Points of the curve; the sample from which they are chosen.
MOST_POINTS = 400
MOST_SAMPLED = 100_000

Pieces = Callable[[], Iterable[NDArray[np.floating[Any]]]]


@dataclass(frozen=True, slots=True)
class Ecdf:
    """An empirical distribution function: all values of a small sample, of a large one as many as a
    curve needs, each exact."""

    x: NDArray[np.float64]  # ascending; the last one is the maximum
    share: NDArray[np.float64]  # of the values that are at most x, 0 to 1
    counted: int  # values in all


def ecdf(pieces: Pieces) -> Ecdf | None:
    """The distribution function of all values; None if there are none. NaN values are left out.

    `pieces` returns the values in pieces, the same at every call; only one piece is in memory at a
    time. [1, 2, 2, 4]: x 1, 2, 4, share 0.25, 0.75, 1.
    """
    count = sum(len(values) for values in map(known, pieces()))
    if not count:
        return None
    grid = _grid(pieces, count)
    at_most = np.zeros(len(grid), dtype=np.int64)
    # sorting them takes a twentieth of looking each up in the grid
    for values in map(known, pieces()):
        at_most += np.searchsorted(np.sort(values), grid, side="right")
    return Ecdf(grid, at_most / count, count)


def _grid(pieces: Pieces, count: int) -> NDArray[np.float64]:
    """The x of the curve: all values of a small sample; else evenly spaced quantiles of a sample,
    more of them in the tail, and minimum and maximum."""
    step = -(-count // MOST_SAMPLED)
    sampled = []
    ends = []
    offset = 0
    for values in map(known, pieces()):
        sampled.append(values[offset::step].copy())  # a view would keep the whole piece
        offset = (offset - len(values)) % step
        if len(values):
            ends += [values.min(), values.max()]
    sample = np.unique(np.concatenate(sampled))
    if step == 1 and len(sample) <= MOST_POINTS:
        return sample
    tail = 1 - np.geomspace(0.05, 1e-5, MOST_POINTS // 4)
    shares = np.concatenate((np.linspace(0, 0.95, 3 * MOST_POINTS // 4), tail))
    return np.unique(
        np.concatenate(
            (
                np.quantile(np.concatenate(sampled), shares, method="lower"),
                [min(ends), max(ends)],
            )
        )
    )
