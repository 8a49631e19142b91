"""Large changes of the time per token in runs of few requests, which have many gaps nonetheless.

36 requests of 200 tokens are too few for slices of requests, but have 7,000 gaps. Each answer is
cut into pieces, and slices of the run's time get the pieces' mean gaps. Gaps of one answer are
alike, so requests have to confirm a change: by a rank-sum test between those in the part and the
others, or by the answers that were generated on both sides of it, which all have to become slower
(or faster; sign test). Only changes of twice and more are believed. Error rates:
tests/analysis/figures/test_gap_changes.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from llama_load.analysis.statistics.changes import (
    FEWEST_SLICES,
    MOST_SLICES,
    Change,
    find_change,
    find_trend,
    is_confirmed,
)
from llama_load.analysis.statistics.slices import Instants, Slices, Values
from llama_load.analysis.statistics.statistics import sign_test

# Pieces of an answer, and the fewest gaps of each.
MOST_PIECES = 8
LEAST_GAPS = 8
PIECES_A_SLICE = 4
PIECES_LONG = 2
# The least change that few requests can show, and the significance of the sign test.
LEAST_SIZE = 2.0
CHANCE = 0.001


@dataclass(frozen=True, slots=True)
class Pieces:
    """Pieces of answers, each with the number of its answer and its mean gap, ms."""

    answer: Instants
    from_ns: Instants
    to_ns: Instants
    gap_ms: Values


def pieces_of(first_ns: Instants, sizes: Instants, gaps_ms: Values) -> Pieces:
    """The pieces of these answers: `sizes` gaps of each, one after the other in `gaps_ms`.

    An answer of 20 gaps has two pieces, of 10 gaps each.
    """
    answers: list[int] = []
    edges_ns: list[tuple[float, float]] = []
    means: list[float] = []
    begins = np.cumsum(sizes) - sizes
    for answer, (first, begin, size) in enumerate(
        zip(first_ns.tolist(), begins.tolist(), sizes.tolist(), strict=True)
    ):
        count = min(MOST_PIECES, size // LEAST_GAPS)
        if first < 0 or not count:
            continue
        times_ms = np.concatenate(
            ([0.0], np.cumsum(gaps_ms[begin : begin + size], dtype=np.float64))
        )
        cuts = np.linspace(0, size, count + 1).astype(np.int64)
        for since, until in pairwise(cuts.tolist()):
            answers.append(answer)
            from_ms = times_ms[since]
            to_ms = times_ms[until]
            edges_ns.append((first + from_ms * 1e6, first + to_ms * 1e6))
            means.append(float(to_ms - from_ms) / (until - since))

    edges = np.array(edges_ns, dtype=np.float64).reshape(-1, 2).astype(np.int64)
    of_answers = np.array(answers, dtype=np.int64)
    return Pieces(of_answers, edges[:, 0], edges[:, 1], np.array(means))


def gap_slices(pieces: Pieces, begin_ns: int, end_ns: int) -> Slices | None:
    """Slices of this time for these pieces; None: too few."""
    inside = (pieces.to_ns > begin_ns) & (pieces.from_ns < end_ns)
    if not inside.any():
        return None
    lasted_ns = max(1.0, float(np.median((pieces.to_ns - pieces.from_ns)[inside])))
    by_time = int((end_ns - begin_ns) / lasted_ns / PIECES_LONG)
    count = min(MOST_SLICES, by_time, int(inside.sum()) // PIECES_A_SLICE)
    return Slices(begin_ns, end_ns, count) if count >= FEWEST_SLICES else None


def gap_change(pieces: Pieces, slices: Slices) -> Change | None:
    """The part of the time with gaps of another size, if it is at least twice as large or small."""
    logs = np.log(np.maximum(pieces.gap_ms, 1e-3))
    levels = np.exp(slices.mean(logs, pieces.from_ns, pieces.to_ns))
    for find in (find_change, find_trend):
        change = find(slices, levels)
        if (
            change is not None
            and change.size >= LEAST_SIZE
            and _is_seen_by_requests(pieces, logs, change)
        ):
            return change
    return None


def _is_seen_by_requests(pieces: Pieces, logs: Values, change: Change) -> bool:
    numbers, places = np.unique(pieces.answer, return_inverse=True)
    count = np.bincount(places)
    means = np.exp(np.bincount(places, logs) / count)
    middle_ns = np.bincount(places, (pieces.from_ns + pieces.to_ns) / 2) / count
    if is_confirmed(change, means, middle_ns.astype(np.int64)):
        return True

    steps = np.array(
        [
            _step(logs[places == place], pieces, places == place, change)
            for place in range(len(numbers))
        ]
    )
    steps = steps[~np.isnan(steps)]
    if not len(steps):
        return False
    agrees = steps > 0 if change.factor > 1 else steps < 0
    return sign_test(int(agrees.sum()), len(steps)) <= CHANCE


def _step(
    logs: Values,
    pieces: Pieces,
    own: np.ndarray[tuple[int], np.dtype[np.bool_]],
    change: Change,
) -> float:
    """By how much an answer's gaps differ inside and outside the part, as logarithm; of an even
    change, its last from its first."""
    if change.at_begin and change.at_end:
        if len(logs) < 2:
            return np.nan
        return float(logs[-1] - logs[0])
    middle_ns = (pieces.from_ns[own] + pieces.to_ns[own]) // 2
    inside = (middle_ns >= change.begin_ns) & (middle_ns < change.end_ns)
    if inside.all() or not inside.any():
        return np.nan
    return float(logs[inside].mean() - logs[~inside].mean())
