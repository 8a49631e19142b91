"""Statistics of a sample that is too large to be sorted or copied: exact, in two passes over pieces
of it."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.statistics.statistics import (
    Distribution,
    describe,
    interval_ranks,
    known,
)

Float32s = NDArray[np.float32]
Pieces = Callable[[], Iterable[Float32s]]

# As unsigned numbers the bits of floats have the order of their values from 0 on; below 0 the
# reverse.
_HALF = 16
_BINS = 1 << 16
# the upper halves in order of value
_UPPERS = np.concatenate(
    (np.arange(_BINS - 1, _BINS // 2 - 1, -1), np.arange(_BINS // 2))
)


def describe_pieces(pieces: Pieces, percentiles: Sequence[float]) -> Distribution:
    """The same as `describe` of all values, which `pieces` returns in pieces, the same at every
    call. NaN values are left out.

    The first pass counts the values by the upper half of their bits, the second counts by the lower
    half those that share their upper half with a wanted rank: 200 million values take 10 MB and 2
    s.
    """
    count = 0
    mean = 0.0
    squares = 0.0
    by_upper = np.zeros(_BINS, dtype=np.int64)
    for values in filter(len, _known_pieces(pieces)):
        by_upper += np.bincount(_upper_bits(values), minlength=_BINS)
        # Sums of squares about the mean of each piece are added (Chan, Golub, LeVeque, 1983).
        own = float(np.mean(values, dtype=np.float64))
        distances = np.subtract(values, own, dtype=np.float64)
        np.square(distances, out=distances)
        before = count
        count = count + len(values)
        # np.dot would start threads
        squares += (
            float(distances.sum()) + (own - mean) ** 2 * before * len(values) / count
        )
        mean += (own - mean) * len(values) / count
    if not count:
        return describe(np.zeros(0), percentiles)
    places = {p: (count - 1) * (p / 100) for p in percentiles}
    ranks = {p: interval_ranks(count, p) for p in percentiles}
    inner = {
        rank - 1
        for low, high in ranks.values()
        for rank in (low, high)
        if 1 <= rank <= count
    }
    inner |= {
        min(int(place) + step, count - 1)
        for place in places.values()
        for step in (0, 1)
    }
    inner |= {(count - 1) // 2, count // 2}
    at = _values_at(sorted(inner), by_upper, pieces)

    def limit(rank: int) -> float | None:
        return at[rank - 1] if 1 <= rank <= count else None

    def interpolated(place: float) -> float:
        below = int(place)
        above = min(below + 1, count - 1)
        return _interpolated(at[below], at[above], place - below)

    return Distribution(
        count=count,
        mean=mean,
        median=(at[(count - 1) // 2] + at[count // 2]) / 2,
        std=math.sqrt(squares / count),
        percentiles={p: interpolated(place) for p, place in places.items()},
        intervals={p: (limit(low), limit(high)) for p, (low, high) in ranks.items()},
    )


def _values_at(
    ranks: Sequence[int], by_upper: NDArray[np.int64], pieces: Pieces
) -> dict[int, float]:
    """The values of these ranks; the smallest has rank 0."""
    below = np.cumsum(by_upper[_UPPERS])
    upper_of = _UPPERS[np.searchsorted(below, ranks, side="right")]
    upper_bins = np.unique(upper_of)
    place_of = np.full(_BINS, -1, dtype=np.int64)
    place_of[upper_bins] = np.arange(len(upper_bins))
    lowers = np.zeros(len(upper_bins) * _BINS, dtype=np.int64)
    is_wanted = place_of >= 0
    for values in _known_pieces(pieces):
        chosen = values[is_wanted[_upper_bits(values)]]
        bits = chosen.view(np.uint32)
        lowers += np.bincount(
            (place_of[bits >> _HALF] << _HALF) + (bits & (_BINS - 1)),
            minlength=len(lowers),
        )
    value_of_rank = {}
    for rank, upper in zip(ranks, upper_of.tolist(), strict=True):
        own = lowers[place_of[upper] << _HALF :][:_BINS]
        order = slice(None) if upper < _BINS // 2 else slice(None, None, -1)
        within = rank - int(below[upper == _UPPERS][0] - by_upper[upper])
        lower = int(np.searchsorted(np.cumsum(own[order]), within, side="right"))
        bits = (upper << _HALF) + (lower if upper < _BINS // 2 else _BINS - 1 - lower)
        value_of_rank[rank] = float(np.uint32(bits).view(np.float32))
    return value_of_rank


def _known_pieces(pieces: Pieces) -> Iterable[Float32s]:
    """The values of each piece, in one block of memory."""
    return (
        np.ascontiguousarray(known(values), dtype=np.float32) for values in pieces()
    )


def _upper_bits(values: Float32s) -> NDArray[np.uint16]:
    """The upper half of the bits of each value: sign, exponent, and 7 bits of the fraction."""
    return values.view(np.uint16)[1 if sys.byteorder == "little" else 0 :: 2]


def _interpolated(low: float, high: float, share: float) -> float:
    """numpy's linear interpolation."""
    return (
        high - (high - low) * (1 - share)
        if share >= 0.5
        else low + (high - low) * share
    )
