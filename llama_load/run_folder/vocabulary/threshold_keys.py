"""The keys that a threshold may name."""

from __future__ import annotations

from collections.abc import Sequence

from llama_load.run_folder.arithmetic.percentiles import percentile_word
from llama_load.run_folder.vocabulary.definitions import (
    EVERY,
    FIGURES,
    SCHEDULED,
    of_group,
)


def threshold_keys(percentiles: Sequence[float]) -> list[str]:
    """The keys of `flat_result` that hold numbers, the most usual ones first.

    `percentiles`: those that are reported.
    """
    words = [*map(percentile_word, percentiles), "median", "mean", "std"]
    of_latencies = []
    counts = []
    for latency in of_group(EVERY, SCHEDULED):
        counts.append(f"count_{latency.key}")
        for word in words:
            of_latencies.append(f"{word}_{latency.key}_ms")

    others = [figure.key for figure in FIGURES]

    return [*of_latencies, *others, "dropped", *counts]
