"""The relay's own delays, counted in buckets: as many as there are, in bounded memory."""

from __future__ import annotations

import math

import numpy as np

from llama_load.loadgen.live.sketch import BUCKETS, LEAST_MS, PER_DECADE, quantiles_ms


class DelayCounts:
    """Delays in ms, whose percentiles are off by at most 0.96 % (see
    `llama_load.loadgen.live.sketch`)."""

    def __init__(self) -> None:
        self._counts = [0] * BUCKETS
        self.count = 0
        self.most_ms: float | None = None

    def add(self, delay_ms: float) -> None:
        """Count one."""
        decades = math.log10(max(delay_ms, LEAST_MS) / LEAST_MS)
        bucket = min(math.ceil(decades * PER_DECADE), BUCKETS - 1)
        self._counts[bucket] += 1
        self.count += 1
        if self.most_ms is None or delay_ms > self.most_ms:
            self.most_ms = delay_ms

    def percentile_ms(self, percentile: float) -> float | None:
        """A percentile in ms; None without delays."""
        (value,) = quantiles_ms(np.array(self._counts), [percentile])
        return value
