"""Histograms of lengths for the terminal, 80 columns wide."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import count, pairwise

ROWS = 12
BAR_CHARS = 36
QUANTILES = (50, 90, 99)
# If the longest is more than this many times the shortest, bins grow: 1, 2, 5, 10, 20, 50, …
EVEN_UP_TO = 10
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def quantile(ordered: Sequence[int], percent: float) -> int:
    """The smallest length that this percentage of the lengths do not exceed (nearest rank).

    `ordered` are the sorted lengths.
    """
    rank = math.ceil(len(ordered) * percent / 100)
    return ordered[max(0, rank - 1)]


def histogram(lengths: Sequence[int]) -> list[str]:
    """Lines of text: about 12 bars, one per bin, then p50, p90, p99, max and mean.

    One line if there are no lengths.
    """
    if not lengths:
        return ["  none"]

    ordered = sorted(lengths)
    edges = _edges(ordered[0], ordered[-1])

    counts = [0] * (len(edges) - 1)
    for length in ordered:
        counts[bisect_right(edges, length) - 1] += 1

    labels = []
    for first, end in pairwise(edges):
        labels.append(_bin_label(first, end))

    label_chars = max(map(len, labels))

    lines = []
    for label, in_bin in zip(labels, counts, strict=True):
        bar = _bar(in_bin / max(counts)).ljust(BAR_CHARS)
        share = in_bin / len(ordered)
        count_and_share = f"{in_bin:>9,} {share:>7.1%}"
        lines.append(f"  {label:>{label_chars}} {bar} {count_and_share}")

    figures = []
    for percent in QUANTILES:
        figures.append(f"p{percent} {quantile(ordered, percent):,}")

    mean = sum(ordered) / len(ordered)
    figures.append(f"max {ordered[-1]:,}")
    figures.append(f"mean {mean:,.0f}")
    lines.append("  " + "  ".join(figures))
    return lines


def _bin_label(first: int, end: int) -> str:
    """`3` or `3–7`: the lengths from `first` to `end` - 1."""
    last = end - 1
    if last == first:
        return f"{first:,}"
    return f"{first:,}–{last:,}"


def _edges(shortest: int, longest: int) -> list[int]:
    """The bins' first lengths, and the end of the last bin."""
    if longest <= EVEN_UP_TO * shortest:
        return _even_edges(shortest, longest)

    edges = [0]
    for edge in _round_numbers():
        edges.append(edge)
        if edge > longest:
            break

    first = bisect_right(edges, shortest) - 1
    # In a very wide spread, the shortest lengths share a bin.
    second = max(first + 1, len(edges) - ROWS)
    return [edges[first], *edges[second:]]


def _even_edges(shortest: int, longest: int) -> list[int]:
    """Edges of bins that are equally wide, the narrowest that give at most 12 bins."""
    for step in _round_numbers():
        first = shortest // step
        last = longest // step
        if last - first < ROWS:
            break
    return [step * number for number in range(first, last + 2)]


def _round_numbers() -> Iterator[int]:
    """1, 2, 5, 10, 20, 50, … without end."""
    for power in count():
        yield 10**power
        yield 2 * 10**power
        yield 5 * 10**power


def _bar(part: float) -> str:
    """A bar of 0 to 36 characters; any value above 0 is visible."""
    eighths = round(part * BAR_CHARS * 8)
    if part > 0:
        eighths = max(eighths, 1)

    full, rest = divmod(eighths, 8)
    bar = _EIGHTHS[8] * full
    if rest:
        bar += _EIGHTHS[rest]
    return bar
