"""Empirical distribution functions and exact percentiles of samples that may be too large to be sorted in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Points of the curve; the sample from which they are chosen.
MOST_POINTS = 400
MOST_SAMPLED = 100_000

Pieces = Callable[[], Iterable[NDArray[np.float64]]]


@dataclass(frozen=True, slots=True)
class Ecdf:
    """The share of values (0 to 1) that are at most x, at some x in ascending order; the last x is the maximum, its share 1.

    `counted` values in all. All values of a small sample are points; of a large one as many as a curve needs, each exact."""

    x: NDArray[np.float64]
    share: NDArray[np.float64]
    counted: int


def ecdf(pieces: Pieces) -> Ecdf | None:
    """The distribution function of all values; None if there are none. NaN values are left out.

    `pieces` returns the values in pieces, the same at every call; only one piece is in memory at a time. [1, 2, 2, 4]: x 1, 2, 4,
    share 0.25, 0.75, 1.
    """
    count = sum(len(values) for values in _known(pieces))
    if not count:
        return None
    grid = _grid(pieces, count)
    counts = np.zeros(len(grid), dtype=np.int64)
    for values in _known(pieces):
        counts += np.bincount(np.searchsorted(grid, values), minlength=len(grid))
    return Ecdf(grid, np.cumsum(counts) / count, count)


def exact_percentiles(pieces: Pieces, curve: Ecdf, percentiles: Sequence[float]) -> dict[float, float]:
    """Percentiles of all values, by linear interpolation between neighbours like numpy's; `curve` is their `ecdf`.

    Only the values between those points of the curve that enclose a percentile are kept: [1, 2, 2, 4], p75: 2.5.
    """
    ends = np.rint(curve.share * curve.counted).astype(np.int64)  # ranks up to ends[i] are at most x[i]
    places = {p: (curve.counted - 1) * p / 100 for p in percentiles}
    ranks = sorted({rank for place in places.values() for rank in (int(place), min(int(place) + 1, curve.counted - 1))})
    wanted = np.unique(np.searchsorted(ends, ranks, side="right"))
    values, counts = np.zeros(0), np.zeros(0, dtype=np.int64)
    for piece in _known(pieces):
        kept = piece[np.isin(np.searchsorted(curve.x, piece), wanted)]
        values, place = np.unique(np.concatenate((values, kept)), return_inverse=True)
        merged = np.concatenate((counts, np.ones(len(kept), dtype=np.int64)))
        counts = np.bincount(place, weights=merged, minlength=len(values)).astype(np.int64)
    # The rank of the last of equal values, with those in between that were not kept.
    bins = np.searchsorted(curve.x, values)
    before = np.concatenate(([0], ends))[bins]
    of_bin = np.cumsum(counts) - np.concatenate(([0], np.cumsum(counts)))[np.searchsorted(bins, bins)]
    last = before + of_bin - 1
    at = {rank: float(values[np.searchsorted(last, rank)]) for rank in ranks}
    found = {}
    for p, place_of in places.items():
        low, high = int(place_of), min(int(place_of) + 1, curve.counted - 1)
        found[p] = at[low] + (at[high] - at[low]) * (place_of - low)
    return found


def _grid(pieces: Pieces, count: int) -> NDArray[np.float64]:
    """The x of the curve: all values of a small sample; else evenly spaced quantiles of a sample, more of them in the tail, and
    minimum and maximum."""
    step = -(-count // MOST_SAMPLED)
    sampled, ends = [], []
    offset = 0
    for values in _known(pieces):
        sampled.append(values[offset::step])
        offset = (offset - len(values)) % step
        if len(values):
            ends += [values.min(), values.max()]
    sample = np.unique(np.concatenate(sampled))
    if step == 1 and len(sample) <= MOST_POINTS:
        return sample
    tail = 1 - np.geomspace(0.05, 1e-5, MOST_POINTS // 4)
    shares = np.concatenate((np.linspace(0, 0.95, 3 * MOST_POINTS // 4), tail))
    return np.unique(np.concatenate((np.quantile(np.concatenate(sampled), shares, method="lower"), [min(ends), max(ends)])))


def _known(pieces: Pieces) -> Iterable[NDArray[np.float64]]:
    for values in pieces():
        yield values[~np.isnan(values)]
