"""Whether values are of one group or of two: a valley between two bumps that chance does not
explain.

Logarithms are counted in bins. Between the two bumps of one group there is no valley: its density
rises to one peak and falls after it. So of the values in a bump and in the valley beside it, no
larger share should be in the bump than its share of their width. How unlikely the share seen is, is
bounded by Chernoff: N KL(seen, width share), in nats. A valley is believed if both bumps beside it
exceed `LEAST_EVIDENCE`. No shape of the groups is assumed, waits in a queue (skewed, with long
tails) are one group.

Neighbours are alike: a stall of the server delays several requests at once. Values of one group
that follow each other without one of the other group between them are one piece of evidence (an
episode), so counts are scaled by episodes / values.

Error rates: benchmarks/two_groups.py, published in benchmarks/verdict_rates.md. Source: H. Chernoff, "A Measure
of Asymptotic Efficiency for Tests of a Hypothesis Based on the Sum of Observations", 1952; compare
J. A. Hartigan, P. M. Hartigan, "The Dip Test of Unimodality", 1985, which needs more values for a
small second group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

# At most this many bins, of 3 % at least. Logarithms further than this from the median (a factor of
# 1000) are counted at the edge.
MOST_BINS = 80
LEAST_BIN = 0.03
FARTHEST = 7.0
# The smallest part that is a group.
LEAST_SHARE = 0.02
# Fewer values show nothing.
FEWEST = 20
# The medians of two groups differ by this factor at least.
LEAST_RATIO = 1.5
# Evidence for each side of a valley, nats.
LEAST_EVIDENCE = 9.0
# A bin with less is empty: differences of sums are rounded.
LEAST_COUNT = 1e-6
# Stands for no share outside of a bump: x ln(x) is 0 there.
LEAST_OUTSIDE = 1e-12


@dataclass(frozen=True, slots=True)
class TwoGroups:
    """The lower and the upper group: who is in the lower one (one bool per value), and how sure it
    is."""

    is_lower: Flags
    ratio: float  # median of the upper / of the lower group
    evidence: float  # nats, of the weaker side

    @property
    def share(self) -> float:
        """Of the smaller group, 0 to 0.5."""
        lower = float(self.is_lower.mean())
        return min(lower, 1 - lower)


@dataclass(frozen=True, slots=True)
class _Valley:
    """Bins `begin` to `end` (without it) between two bumps."""

    begin: int
    end: int

    @property
    def border(self) -> int:
        """The first bin of the upper group."""
        return (self.begin + self.end + 1) // 2


def two_groups(values: Floats) -> TwoGroups | None:
    """The two groups of these values (above 0, in the order of their time), or None where one group
    explains them.

    300 values around 300 ms with a scatter of 20 %, 40 of them around 20 ms instead: the 40 and the
    260, ratio 15.
    """
    if len(values) < FEWEST:
        return None

    logs = np.log(values)
    away = np.clip(logs - np.median(logs), -FARTHEST, FARTHEST)
    above = away - away.min()
    bins = np.floor(above / max(LEAST_BIN, float(above.max()) / MOST_BINS)).astype(
        np.int64
    )
    counts = np.bincount(bins).astype(np.float64)
    valley = _best_valley(counts)
    if valley is None:
        return None

    is_lower = bins < valley.border
    evidence = _evidence(_with_episodes(counts, is_lower, valley.border))[
        valley.begin, valley.end
    ]
    upper = np.median(logs[~is_lower])
    lower = np.median(logs[is_lower])
    found = TwoGroups(is_lower, float(np.exp(upper - lower)), float(evidence))
    is_sure = found.evidence > LEAST_EVIDENCE
    if is_sure and found.ratio >= LEAST_RATIO and found.share >= LEAST_SHARE:
        return found
    return None


def _best_valley(counts: Floats) -> _Valley | None:
    """The valley with the most evidence that has enough values on each side."""
    evidence = _evidence(counts)
    below = np.concatenate(([0.0], np.cumsum(counts)))
    begins, ends = np.indices(evidence.shape)
    middles = np.minimum((begins + ends + 1) // 2, len(counts))
    lower = below[middles] / below[-1]
    evidence[(lower < LEAST_SHARE) | (lower > 1 - LEAST_SHARE)] = 0.0

    best = int(np.argmax(evidence))
    begin, end = divmod(best, evidence.shape[1])
    return _Valley(begin, end) if evidence[begin, end] > LEAST_EVIDENCE else None


def _evidence(counts: Floats) -> Floats:
    """For each valley (bins from row to column) the evidence of its weaker side, nats; 0 where
    there is none."""
    size = len(counts)
    below = np.concatenate(([0.0], np.cumsum(counts)))
    of_lower = _evidence_of_lower(below)

    mirrored = _evidence_of_lower(below[-1] - below[::-1])
    of_upper = mirrored[::-1, ::-1].T
    assert of_upper.shape == (size + 1, size + 1)
    return np.minimum(of_lower, of_upper)


def _evidence_of_lower(below: Floats) -> Floats:
    """The largest evidence of a bump that ends where a valley begins, for each valley: N KL(share
    in the bump, its share of the width).

    `below`: how many values are below each edge. Seven values in a bump of 0.2, none in a valley of
    2.7: 7 ln(2.9 / 0.2) = 18.7.

    Only bumps that begin and end with a filled bin, and valleys that end before one: others have
    less evidence than one of these with the same values.
    """
    size = len(below)
    evidence = np.zeros((size, size))
    filled = np.flatnonzero(np.diff(below) > LEAST_COUNT)
    for last in filled[:-1]:
        begin = last + 1
        bump_begins = filled[filled <= last, None]
        valley_ends = filled[None, filled > begin]
        if not valley_ends.size:
            continue

        width = (begin - bump_begins) / (valley_ends - bump_begins)
        inside = below[begin] - below[bump_begins]
        total = below[valley_ends] - below[bump_begins]
        most = _divergence(inside, total, width).max(axis=0)
        evidence[begin, valley_ends[0]] = most
    return evidence


def _divergence(inside: Floats, total: Floats, width: Floats) -> Floats:
    """total KL(inside / total, width), 0 where the share inside is not above its width's."""
    share = inside / total
    divergence = np.zeros(share.shape)
    dense = share > width
    inner = share[dense]
    outer = np.maximum(1 - inner, LEAST_OUTSIDE)
    within = width[dense]
    of_inside = inner * np.log(inner / within)
    of_outside = outer * np.log(outer / (1 - within))
    divergence[dense] = total[dense] * (of_inside + of_outside)
    return divergence


def _with_episodes(counts: Floats, is_lower: Flags, border: int) -> Floats:
    """The counts with those of the smaller group scaled by its episodes / its values."""
    smaller_is_lower = is_lower.mean() <= 0.5
    of_smaller = is_lower if smaller_is_lower else ~is_lower
    begins = of_smaller & ~np.concatenate(([False], of_smaller[:-1]))

    scale = np.ones(len(counts))
    part = slice(0, border) if smaller_is_lower else slice(border, None)
    scale[part] = begins.sum() / of_smaller.sum()
    return np.asarray(counts * scale)
