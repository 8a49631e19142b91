"""A side of a comparison: one set-up, measured by one run or by several (repeats)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from llama_load.comparison.change_intervals import Ratio, RatioWithZeros, ratio_of
from llama_load.comparison.compared_metrics import Metric

# What measured a run.
LLAMA_LOAD, VLLM_BENCH_SERVE = "llama-load", "vllm bench serve"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """One run: its figures and what is needed to judge whether they can be compared.

    `values`: by key of summary.json, None where not measured. `planned`: requests that were to be sent (None: unknown, or limited
    by time). `words` and `why`: the verdict's words but VALID, and its sentence. `spoiled`: latencies that are not what they
    seem. `samples`: values of a latency, one per request (ms), for charts. `prompts`: hashes of the prompts sent, None if
    unknown or if each run has its own beginnings; `plan`: equal for runs
    that were to send the same prompts, but for such beginnings. `load`: concurrency, request rate and the like, name to
    value, as far as it is known; `endpoint`: chat, completions, empty if unknown. `setup`: what was run, name to value. `identity`:
    equal for two readings of the same run. `label`: its own name, where it has one. `concurrency`: most requests in flight, None
    if there was no limit. `client`: the machine that measured it. `replaced`: planned
    prompts that did not fit a slot and were replaced by others, None if unknown. `command`: how to repeat it.
    """

    name: str
    values: Mapping[str, float | None]
    tool: str = LLAMA_LOAD
    planned: int | None = None
    words: tuple[str, ...] = ()
    why: str = ""
    spoiled: tuple[str, ...] = ()
    cached_tokens: int | None = None
    reused_ratio: float | None = None
    connect_ms: float | None = None
    fixed_lengths: bool = False
    samples: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    prompts: frozenset[str] | None = None
    plan: str = ""
    load: Mapping[str, str] = field(default_factory=dict)
    endpoint: str = ""
    setup: Mapping[str, str] = field(default_factory=dict)
    date: str = ""
    identity: str = ""
    label: str = ""
    concurrency: int | None = None
    client: str = ""
    replaced: int | None = None
    command: str = ""

    def value(self, key: str) -> float | None:
        """A figure; None where it was not measured."""
        return self.values.get(key)

    def count(self, key: str) -> int:
        """A figure that is a count; 0 where it is unknown."""
        return int(self.values.get(key) or 0)

    @property
    def failed(self) -> int:
        """Requests without a complete answer: those reported, or planned ones without a result."""
        missing = self.planned - self.count("completed") if self.planned is not None else 0
        return max(self.count("failed"), missing, 0)

    @property
    def mean_input(self) -> float | None:
        """Mean prompt tokens per successful request."""
        return self._each("total_input_tokens")

    @property
    def mean_output(self) -> float | None:
        """Mean output tokens per successful request."""
        return self._each("total_output_tokens")

    @property
    def cached_ratio(self) -> float | None:
        """Cached prompt tokens / prompt tokens, 0 to 1."""
        total = self.value("total_input_tokens")
        return self.cached_tokens / total if self.cached_tokens is not None and total else None

    def values_behind(self, latency: str | None) -> int:
        """How many values a latency's percentile is taken from; for pooled gaps the output tokens after the first."""
        if latency is None:
            return self.count("completed")
        if (known := self.value(f"count_{latency}")) is not None:
            return int(known)
        tokens = self.count("total_output_tokens") - self.count("completed")
        return max(tokens, 0) if latency == "itl" else self.count("completed")

    def _each(self, key: str) -> float | None:
        total, completed = self.value(key), self.count("completed")
        return total / completed if total is not None and completed else None


@dataclass(frozen=True, slots=True)
class Side:
    """A set-up: its label and its runs, one at least."""

    label: str
    runs: Sequence[MeasuredRun]

    def without_copies(self) -> Side:
        """The side with each run once: a copy is no repeat."""
        first = {run.identity: number for number, run in reversed(list(enumerate(self.runs)))}
        return replace(
            self, runs=[run for number, run in enumerate(self.runs) if not run.identity or first[run.identity] == number]
        )

    def values(self, key: str) -> list[float]:
        """A figure of every run that measured it."""
        values = (run.value(key) for run in self.runs)
        return [float(value) for value in values if value is not None and math.isfinite(value)]

    def mean(self, key: str) -> float | None:
        """Mean over the runs; None where no run measured it."""
        values = self.values(key)
        return math.fsum(values) / len(values) if values else None

    def std(self, key: str) -> float | None:
        """Standard deviation over the runs (ddof 1); None with fewer than two."""
        values = self.values(key)
        return float(np.std(values, ddof=1)) if len(values) > 1 else None

    def mean_of(self, name: str) -> float | None:
        """Mean over the runs of a property of a run, such as `mean_output`; None where no run has it."""
        values = [value for run in self.runs if (value := getattr(run, name)) is not None]
        return math.fsum(values) / len(values) if values else None


def ratio_between(base: Side, other: Side, key: str) -> Ratio | RatioWithZeros | None:
    """The ratio other / base of a figure; None with fewer than two runs a side (see `intervals.ratio_of`)."""
    return ratio_of(base.values(key), other.values(key))


def is_thin(metric: Metric, *sides: Side) -> bool:
    """Whether a run of these sides has too few values for this percentile, which then is close to their maximum."""
    return any(run.values_behind(metric.latency) < metric.least_count for side in sides for run in side.runs)
