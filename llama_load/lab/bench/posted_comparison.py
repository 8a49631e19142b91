"""Two posted blocks beside each other: which rows differ by more than their intervals."""

from __future__ import annotations

import math

from llama_load.lab.bench.bench_block import PostedBench, text_of_estimate
from llama_load.lab.sweep.mean_interval import MeanInterval
from llama_load.tables import LEFT, Column, Row, Table

NOT_PROVEN = "no difference proven"
NO_INTERVAL = "no interval"


def compared_table(base: PostedBench, other: PostedBench) -> Table:
    """A row for each figure that both have; the change of the second against the first.

    The interval of a difference of two independent means is the root of the sum of the squares of
    theirs.
    """
    rows: list[Row] = []
    for name, figures in base.rows.items():
        for head, before in figures.items():
            after = other.rows.get(name, {}).get(head)
            if after is None:
                continue
            texts = [text_of_estimate(before), text_of_estimate(after)]
            rows.append([name, head, *texts, _change_against(before, after)])

    heads = [
        Column("test", LEFT),
        Column("figure", LEFT),
        Column(f"A: {base.model}"),
        Column(f"B: {other.model}"),
        Column("B against A"),
    ]
    return Table("", heads, rows, style="padded")


def _change_against(before: MeanInterval, after: MeanInterval) -> str:
    """`+6.1 % (+3.2 to +9.0)`; or that none is proven."""
    if not before.mean:
        return ""
    difference = after.mean - before.mean
    change = f"{100 * difference / before.mean:+.1f} %"
    if before.half is None or after.half is None:
        return f"{change} ({NO_INTERVAL})"

    half = math.hypot(before.half, after.half)
    low = 100 * (difference - half) / before.mean
    high = 100 * (difference + half) / before.mean
    if low <= 0 <= high:
        return f"{change} ({NOT_PROVEN}: {low:+.1f} to {high:+.1f})"
    return f"{change} ({low:+.1f} to {high:+.1f})"
