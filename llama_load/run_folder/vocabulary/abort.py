"""Thresholds that abort a run (--abort-if), checked during the run against the measured requests
that have ended.

    failure_ratio, failed                         once 20 requests have ended
    mean_, median_ and pN_ of ttft, tpot, e2el    once the percentile has enough values (p99: 100),
                                                  at least 20
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from copy import deepcopy

import numpy as np

from llama_load.run_folder.arithmetic.percentiles import least_count
from llama_load.run_folder.observed.record import OK
from llama_load.run_folder.vocabulary.thresholds import (
    Threshold,
    ThresholdResult,
    evaluate,
    parse_threshold,
)

LATENCIES = ("ttft", "tpot", "e2el")
# One failure or one slow answer among few requests must not end a run.
LEAST = 20
_KEY = re.compile(
    rf"failure_ratio|failed|(?P<what>mean|median|p(?P<p>\d{{1,2}}(?:\.\d+)?))_(?P<latency>{'|'.join(LATENCIES)})_ms"
)


def parse_abort(text: str) -> Threshold:
    """Parse a threshold of --abort-if. Raises ValueError with a message for users."""
    try:
        threshold = parse_threshold(text)
    except ValueError as error:
        raise ValueError(str(error).replace("--fail-if", "--abort-if")) from None
    if threshold.group is not None or not _KEY.fullmatch(threshold.key):
        raise ValueError(
            "--abort-if takes failure_ratio, failed, and mean, median and percentiles of ttft, tpot and e2el of the whole run, "
            f"such as p99_ttft_ms>5000, got {text!r}"
        )
    return threshold


class RunningFigures:
    """The measured requests that have ended: their number, how many failed, and the latencies of
    the others in ms."""

    def __init__(self) -> None:
        self.ended = self.failed = 0
        self._latencies = {name: array("d") for name in LATENCIES}

    def add(self, status: str, latencies_ms: Sequence[float | None]) -> None:
        """Add a request that has ended. Latencies in the order of `LATENCIES`, None where it has
        none."""
        self.ended += 1
        if status != OK:
            self.failed += 1
            return
        for values, value_ms in zip(
            self._latencies.values(), latencies_ms, strict=True
        ):
            if value_ms is not None:
                values.append(value_ms)

    def so_far(self) -> RunningFigures:
        """A copy, which another thread can judge."""
        return deepcopy(self)

    def judge(self, thresholds: Sequence[Threshold]) -> ThresholdResult | None:
        """The first threshold that is exceeded; None if none is."""
        for threshold in thresholds:
            value = self._value(threshold.key)
            if (
                value is not None
                and (result := evaluate(threshold, {threshold.key: value})).failed
            ):
                return result
        return None

    def _value(self, key: str) -> float | None:
        """The figure; None where it has too few values."""
        match = _KEY.fullmatch(key)
        if self.ended < LEAST or match is None:
            return None
        if match["latency"] is None:
            return self.failed if key == "failed" else self.failed / self.ended
        values = self._latencies[match["latency"]]
        p = 50.0 if match["p"] is None else float(match["p"])
        if len(values) < max(LEAST, least_count(p)):
            return None
        return float(
            np.mean(values) if match["what"] == "mean" else np.percentile(values, p)
        )
