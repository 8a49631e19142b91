"""Histograms of lengths for the terminal, 80 columns wide."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import chain, count, pairwise

ROWS = 12
BAR_CHARS = 36
QUANTILES = (50, 90, 99)
# If the longest is more than this many times the shortest, bins grow: 1, 2, 5, 10, 20, 50, …
EVEN_UP_TO = 10
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def quantile(ordered: Sequence[int], percent: float) -> int:
    """The smallest length that this percentage of the sorted lengths do not exceed (nearest rank)."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def histogram(lengths: Sequence[int]) -> list[str]:
    """Lines of text: about 12 bars, one per bin, then p50, p90, p99, max and mean; one line if there are no lengths."""
    if not lengths:
        return ["  none"]
    ordered = sorted(lengths)
    edges = _edges(ordered[0], ordered[-1])
    counts = [0] * (len(edges) - 1)
    for length in ordered:
        counts[bisect_right(edges, length) - 1] += 1
    labels = [f"{first:,}" if end == first + 1 else f"{first:,}–{end - 1:,}" for first, end in pairwise(edges)]
    width = max(map(len, labels))
    lines = [
        f"  {label:>{width}} {_bar(count / max(counts)):<{BAR_CHARS}} {count:>9,} {count / len(ordered):>7.1%}"
        for label, count in zip(labels, counts, strict=True)
    ]
    figures = [f"p{percent} {quantile(ordered, percent):,}" for percent in QUANTILES]
    figures += [f"max {ordered[-1]:,}", f"mean {sum(ordered) / len(ordered):,.0f}"]
    return [*lines, "  " + "  ".join(figures)]


def _edges(shortest: int, longest: int) -> list[int]:
    """The bins' first lengths, and the end of the last bin."""
    if longest <= EVEN_UP_TO * shortest:
        step = next(step for step in _round_numbers() if longest // step - shortest // step < ROWS)
        return [step * number for number in range(shortest // step, longest // step + 2)]
    edges = [0]
    for edge in _round_numbers():
        edges.append(edge)
        if edge > longest:
            break
    first = bisect_right(edges, shortest) - 1
    # In a very wide spread, the shortest lengths share a bin.
    return [edges[first], *edges[max(first + 1, len(edges) - ROWS) :]]


def _round_numbers() -> chain[int]:
    return chain.from_iterable((10**power, 2 * 10**power, 5 * 10**power) for power in count())


def _bar(part: float) -> str:
    """A bar of 0 to 36 characters; any value above 0 is visible."""
    eighths = max(round(part * BAR_CHARS * 8), part > 0)
    full, rest = divmod(eighths, 8)
    return _EIGHTHS[8] * full + (_EIGHTHS[rest] if rest else "")
