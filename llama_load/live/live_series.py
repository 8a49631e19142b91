"""Figures over time in a bounded number of steps: when the steps run out, every two become one of twice the width."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llama_load.live.sketch import BUCKETS, quantiles_of_rows_ms
from llama_load.units import NS_PER_S

# 12 minutes at 1 s, an hour at 8 s, a day at 128 s: more than a screen has pixels to show.
MOST_STEPS = 720
# The latencies with percentiles over time, and these percentiles.
OVER_TIME = ("ttft", "itl")
PERCENTILES = (50.0, 90.0, 99.0)
# Rates of the present step are those of its part so far, but of no less.
LEAST_WIDTH_S = 0.5
# Series of other meters, such as a GPU's power. A server may report any number of them.
MOST_GAUGES = 64


@dataclass(frozen=True, slots=True)
class _Gauge:
    """The sum and number of its values in each step."""

    sums: NDArray[np.float64]
    counts: NDArray[np.int64]


class TimeSeries:
    """Steps of equal width from an instant on. `width_s` is their width, in s; `version` grows with every change."""

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
        self._sketches = {name: np.zeros((MOST_STEPS, BUCKETS), np.uint32) for name in OVER_TIME}
        self._gauges: dict[str, _Gauge] = {}

    def steps_of(self, instants_ns: NDArray[np.int64], now_ns: int) -> NDArray[np.int64]:
        """The step of each instant; one before the begin is in the first step, one after `now_ns` in that of `now_ns`."""
        last = self._reach(now_ns)
        return np.clip((instants_ns - self._begun_ns) // (self.width_s * NS_PER_S), 0, last)

    def add_requests(self, steps: NDArray[np.int64], failed: NDArray[np.bool_]) -> None:
        """Count requests that ended in these steps."""
        self._change(steps)
        np.add.at(self._ended, steps, 1)
        np.add.at(self._failed, steps, failed)

    def add_tokens(self, steps: NDArray[np.int64], tokens: NDArray[np.float64]) -> None:
        """Count output tokens that came in these steps."""
        self._change(steps)
        self._output_tokens += np.bincount(steps, tokens, MOST_STEPS)

    def _change(self, steps: NDArray[np.int64]) -> None:
        self.version += 1
        self._changed[steps] = self.version

    def add_latencies(self, name: str, steps: NDArray[np.int64], buckets: NDArray[np.int64]) -> None:
        """Count values of a latency of `OVER_TIME`, by step and bucket."""
        if not len(steps):
            return
        first, last = int(steps.min()), int(steps.max()) + 1  # few: as long as the answers that are counted together
        counts = np.bincount((steps - first) * BUCKETS + buckets, minlength=(last - first) * BUCKETS)
        self._sketches[name][first:last] += counts.reshape(last - first, BUCKETS).astype(np.uint32)

    def sample(self, values: Mapping[str, float], now_ns: int) -> None:
        """Note the present values of gauges, such as the requests in flight."""
        step = self._reach(now_ns)
        self.version += 1
        self._changed[step] = self.version
        for name, value in values.items():
            if name not in self._gauges:
                if len(self._gauges) >= MOST_GAUGES:
                    continue
                self._gauges[name] = _Gauge(np.zeros(MOST_STEPS), np.zeros(MOST_STEPS, np.int64))
            gauge = self._gauges[name]
            gauge.sums[step] += value
            gauge.counts[step] += 1

    @property
    def reached_s(self) -> float:
        """The newest instant that was noted, s since the begin."""
        return (self._reached_ns - self._begun_ns) / NS_PER_S

    def since(self, version: int) -> dict[str, Any]:
        """The steps that have changed after that version, as columns: `step` is its number, `t_s` its end since the begin.

        Rates are per second, latencies in ms; None is not known. Steps in which nothing was counted or sampled are left out.
        """
        steps = np.flatnonzero(self._changed[: self._steps] > max(version, 0))
        ended, failed, tokens = (array[steps] for array in (self._ended, self._failed, self._output_tokens))
        so_far_s = self.reached_s
        ends_s = np.minimum((steps + 1) * self.width_s, np.ceil(so_far_s))
        widths_s = np.maximum(np.minimum((steps + 1) * self.width_s, so_far_s) - steps * self.width_s, LEAST_WIDTH_S)
        columns_of_page: dict[str, Any] = {
            "step": steps.tolist(),
            "t_s": ends_s.tolist(),
            "requests_per_s": (ended / widths_s).tolist(),
            "failures_per_s": (failed / widths_s).tolist(),
            "output_tok_per_s": (tokens / widths_s).tolist(),
        }
        for name, counts in self._sketches.items():
            columns = quantiles_of_rows_ms(counts[steps], PERCENTILES)
            columns_of_page |= {f"p{p:g}_{name}_ms": column for p, column in zip(PERCENTILES, columns, strict=True)}
        gauges = {}
        for name, gauge in self._gauges.items():
            pairs = zip(gauge.sums[steps].tolist(), gauge.counts[steps].tolist(), strict=True)
            gauges[name] = [total / count if count else None for total, count in pairs]
        return columns_of_page | {"gauges": gauges}

    def _reach(self, now_ns: int) -> int:
        """The step of this instant, with steps made wider if there are not enough."""
        while (step := max(0, (now_ns - self._begun_ns) // (self.width_s * NS_PER_S))) >= MOST_STEPS:
            self._coarsen()
        self._steps = max(self._steps, step + 1)
        self._reached_ns = max(self._reached_ns, now_ns)
        return int(step)

    def _coarsen(self) -> None:
        self.width_s *= 2
        self.version += 1
        arrays: list[NDArray[Any]] = [self._ended, self._failed, self._output_tokens, *self._sketches.values()]
        for array in arrays:
            _halve(array)
        for gauge in self._gauges.values():
            _halve(gauge.sums)
            _halve(gauge.counts)
        seen = np.maximum(self._changed[::2], self._changed[1::2])
        self._changed[:] = 0
        self._changed[: MOST_STEPS // 2] = np.where(seen > 0, self.version, 0)
        self._steps = -(-self._steps // 2)


def _halve(array: NDArray[Any]) -> None:
    """Every two rows become one, their sum; the rest is zero."""
    array[: MOST_STEPS // 2] = array[::2] + array[1::2]
    array[MOST_STEPS // 2 :] = 0
