"""Figures over time in a bounded number of steps.

When the steps run out, every two become one of twice the width.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llama_load.ground.units import NS_PER_S
from llama_load.loadgen.live.sketch import (
    BUCKETS,
    Floats,
    Integers,
    quantiles_of_rows_ms,
)

# 12 minutes at 1 s, an hour at 8 s, a day at 128 s: more than a screen has pixels to show.
MOST_STEPS = 720
# The latencies with percentiles over time, and these percentiles.
OVER_TIME = ("ttft", "itl")
PERCENTILES = (50.0, 90.0, 99.0)
# Rates of the present step are those of its part so far, but of no less.
LEAST_WIDTH_S = 0.5
# The newest requests whose first token is drawn as a dot.
MOST_DOTS = 2000
# Series of other meters, such as a GPU's power. A server may report any number of them.
MOST_GAUGES = 64


@dataclass(frozen=True, slots=True)
class _Gauge:
    """The sum and number of its values in each step."""

    sums: Floats
    counts: Integers

    def means(self, steps: Integers) -> list[float | None]:
        """The mean of each of these steps; None without a value."""
        totals = self.sums[steps].tolist()
        counts = self.counts[steps].tolist()
        means: list[float | None] = []
        for total, count in zip(totals, counts, strict=True):
            if count:
                means.append(total / count)
            else:
                means.append(None)

        return means


class TimeSeries:
    """Steps of equal width from an instant on.

    `width_s` is their width, in s; `version` grows with every change.
    """

    def __init__(self, begun_ns: int) -> None:
        self._begun_ns = begun_ns
        self.width_s = 1
        self.version = 0
        self._steps = 0
        self._reached_ns = begun_ns
        self._changed = np.zeros(MOST_STEPS, np.int64)
        self._ended = np.zeros(MOST_STEPS, np.int64)
        self._failed = np.zeros(MOST_STEPS, np.int64)
        self._output_tokens = np.zeros(MOST_STEPS)
        self._sketches: dict[str, NDArray[np.uint32]] = {}
        for name in OVER_TIME:
            sketch = np.zeros((MOST_STEPS, BUCKETS), np.uint32)
            self._sketches[name] = sketch

        self._gauges: dict[str, _Gauge] = {}
        # The version in which each was added, its instant in s since the begin, its TTFT in ms.
        self._dots: deque[tuple[int, float, float]] = deque(maxlen=MOST_DOTS)

    def seconds_of(self, instant_ns: int) -> float:
        """Seconds from the begin to this instant."""
        return (instant_ns - self._begun_ns) / NS_PER_S

    def steps_of(self, instants_ns: Integers, now_ns: int) -> Integers:
        """The step of each instant.

        One before the begin is in the first step, one after `now_ns` in that of `now_ns`.
        """
        last = self._reach(now_ns)
        width_ns = self.width_s * NS_PER_S
        steps = (instants_ns - self._begun_ns) // width_ns
        return np.clip(steps, 0, last)

    def add_requests(self, steps: Integers, failed: NDArray[np.bool_]) -> None:
        """Count requests that ended in these steps."""
        self._change(steps)
        np.add.at(self._ended, steps, 1)
        np.add.at(self._failed, steps, failed)

    def add_tokens(self, steps: Integers, tokens: Floats) -> None:
        """Count output tokens that came in these steps."""
        self._change(steps)
        self._output_tokens += np.bincount(steps, tokens, MOST_STEPS)

    def _change(self, steps: Integers) -> None:
        self.version += 1
        self._changed[steps] = self.version

    def add_latencies(self, name: str, steps: Integers, buckets: Integers) -> None:
        """Count values of a latency of `OVER_TIME`, by step and bucket."""
        if not len(steps):
            return

        # Few rows: as long as the answers that are counted together.
        first = int(steps.min())
        after = int(steps.max()) + 1
        rows = after - first
        cells = (steps - first) * BUCKETS + buckets
        counts = np.bincount(cells, minlength=rows * BUCKETS)
        counts = counts.reshape(rows, BUCKETS).astype(np.uint32)
        sketch = self._sketches[name]
        sketch[first:after] += counts

    def add_first_tokens(self, instants_ns: Floats | Integers, ttft_ms: Floats) -> None:
        """Note first tokens, each at its instant."""
        self.version += 1
        since_s = (instants_ns - self._begun_ns) / NS_PER_S
        for t_s, value_ms in zip(since_s.tolist(), ttft_ms.tolist(), strict=True):
            self._dots.append((self.version, t_s, value_ms))

    def sample(self, values: Mapping[str, float], now_ns: int) -> None:
        """Note the present values of gauges, such as the requests in flight."""
        step = self._reach(now_ns)
        self.version += 1
        self._changed[step] = self.version
        for name, value in values.items():
            if name not in self._gauges:
                if len(self._gauges) >= MOST_GAUGES:
                    continue

                sums = np.zeros(MOST_STEPS)
                counts = np.zeros(MOST_STEPS, np.int64)
                self._gauges[name] = _Gauge(sums, counts)

            gauge = self._gauges[name]
            gauge.sums[step] += value
            gauge.counts[step] += 1

    def last_output(self, steps: int, until_s: float) -> list[float]:
        """Output tokens/s in each of the last whole steps that end before an instant.

        The oldest first, without those before the first token.
        """
        after = min(int(until_s / self.width_s), self._steps)
        first = max(0, after - steps)
        rates = self._output_tokens[first:after] / self.width_s
        if not first:
            rates = np.trim_zeros(rates, "f")
        shown: list[float] = rates.tolist()
        return shown

    @property
    def reached_s(self) -> float:
        """The newest instant that was noted, s since the begin."""
        return self.seconds_of(self._reached_ns)

    def since(self, version: int) -> dict[str, Any]:
        """The steps that have changed after that version, as columns.

        `step` is its number, `t_s` its end since the begin. Rates are per second, latencies in ms;
        None is not known. Steps in which nothing was counted or sampled are left out.
        """
        is_changed = self._changed[: self._steps] > max(version, 0)
        steps = np.flatnonzero(is_changed)

        so_far_s = self.reached_s
        begins_s = steps * self.width_s
        whole_ends_s = (steps + 1) * self.width_s
        ends_s = np.minimum(whole_ends_s, np.ceil(so_far_s))
        widths_s = np.minimum(whole_ends_s, so_far_s) - begins_s
        widths_s = np.maximum(widths_s, LEAST_WIDTH_S)

        requests_per_s = self._ended[steps] / widths_s
        failures_per_s = self._failed[steps] / widths_s
        output_tok_per_s = self._output_tokens[steps] / widths_s
        columns_of_page: dict[str, Any] = {
            "step": steps.tolist(),
            "t_s": ends_s.tolist(),
            "requests_per_s": requests_per_s.tolist(),
            "failures_per_s": failures_per_s.tolist(),
            "output_tok_per_s": output_tok_per_s.tolist(),
        }

        for name, counts in self._sketches.items():
            columns = quantiles_of_rows_ms(counts[steps], PERCENTILES)
            for percentile, column in zip(PERCENTILES, columns, strict=True):
                key = f"p{percentile:g}_{name}_ms"
                columns_of_page[key] = column

        gauges = {}
        for name, gauge in self._gauges.items():
            gauges[name] = gauge.means(steps)

        dots = [dot for dot in self._dots if dot[0] > version]
        first_tokens = {
            "t_s": [t_s for _, t_s, _ in dots],
            "ttft_ms": [ttft_ms for _, _, ttft_ms in dots],
        }

        return columns_of_page | {"gauges": gauges, "first_tokens": first_tokens}

    def _reach(self, now_ns: int) -> int:
        """The step of this instant, with steps made wider if there are not enough."""
        since_ns = max(0, now_ns - self._begun_ns)
        since_s = since_ns // NS_PER_S
        while since_s // self.width_s >= MOST_STEPS:
            self._coarsen()

        step = int(since_s // self.width_s)
        self._steps = max(self._steps, step + 1)
        self._reached_ns = max(self._reached_ns, now_ns)

        return step

    def _coarsen(self) -> None:
        self.width_s *= 2
        self.version += 1
        arrays: list[NDArray[Any]] = [
            self._ended,
            self._failed,
            self._output_tokens,
            *self._sketches.values(),
        ]
        for gauge in self._gauges.values():
            arrays += [gauge.sums, gauge.counts]

        for array in arrays:
            _halve(array)

        # A step that was ever changed is changed now.
        _halve(self._changed)
        self._changed[self._changed > 0] = self.version
        self._steps = math.ceil(self._steps / 2)


def _halve(array: NDArray[Any]) -> None:
    """Every two rows become one, their sum; the rest is zero."""
    half = MOST_STEPS // 2
    sums = array[::2] + array[1::2]
    array[:half] = sums
    array[half:] = 0
