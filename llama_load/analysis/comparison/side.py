"""A side of a comparison: one set-up, measured by one run or by several (repeats)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.comparison.change_intervals import (
    Ratio,
    RatioWithZeros,
    ratio_of,
)
from llama_load.analysis.comparison.compared_metrics import Metric
from llama_load.analysis.comparison.request_answers import Answers
from llama_load.analysis.figures.level import Level
from llama_load.run_folder.vocabulary.flag_roles import FlagRoles

# What measured a run.
LLAMA_LOAD = "llama-load"
VLLM_BENCH_SERVE = "vllm bench serve"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """One run: its figures and what is needed to judge whether they can be compared.

    `values`: by key of summary.json, None where not measured. `planned`: requests that were to be
    sent (None: unknown, or limited by time). `words` and `why`: the verdict's words but VALID, and
    its sentence. `spoiled`: latencies that are not what they seem. `samples`: values of a latency,
    one per request (ms), for charts. `prompts`: hashes of the prompts sent, None if unknown or if
    each run has its own beginnings; `plan`: equal for runs that were to send the same prompts, but
    for such beginnings. `load`: concurrency, request rate and the like, name to value, as far as it
    is known; `endpoint`: chat, completions, empty if unknown. `setup`: what was run, name to value.
    `identity`: equal for two readings of the same run. `label`: its own name, where it has one.
    `concurrency`: most requests in flight, None if there was no limit. `client`: the machine that
    measured it. `replaced`: planned prompts that did not fit a slot and were replaced by others,
    None if unknown. `command`: how to repeat it. `vllm_tpot`: of a run of ours, the keys of TPOT by
    vLLM's formula. `answers`: which of its requests were answered, None if unknown.
    `judged_of`: of how many requests the `completed` ones are those that it is judged by, although
    others failed; None where it is judged by all. `levels`: its stages, for charts.
    `flag_roles`: of the flags in its command.
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
    vllm_tpot: Mapping[str, float | None] = field(default_factory=dict)
    answers: Answers | None = None
    judged_of: int | None = None
    levels: Sequence[Level] = ()
    flag_roles: FlagRoles = field(default_factory=FlagRoles)

    def value(self, key: str) -> float | None:
        """A figure; None where it was not measured."""
        return self.values.get(key)

    def count(self, key: str) -> int:
        """A figure that is a count; 0 where it is unknown."""
        return int(self.values.get(key) or 0)

    @property
    def failed(self) -> int:
        """Requests without a complete answer: those reported, or planned ones without a result."""
        missing = 0
        if self.planned is not None:
            missing = self.planned - self.count("completed")

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
        if self.cached_tokens is None or not total:
            return None
        return self.cached_tokens / total

    def values_behind(self, latency: str | None) -> int:
        """How many values a latency's percentile is taken from.

        For pooled gaps the output tokens after the first.
        """
        completed = self.count("completed")
        if latency is None:
            return completed
        known = self.value(f"count_{latency}")
        if known is not None:
            return int(known)
        if latency == "itl":
            return max(self.count("total_output_tokens") - completed, 0)
        return completed

    def _each(self, key: str) -> float | None:
        total = self.value(key)
        completed = self.count("completed")
        if total is None or not completed:
            return None
        return total / completed


@dataclass(frozen=True, slots=True)
class Side:
    """A set-up: its label and its runs, one at least."""

    label: str
    runs: Sequence[MeasuredRun]

    @property
    def identities(self) -> set[str]:
        """Those of its runs; empty texts where not known, as in the following."""
        return {run.identity for run in self.runs}

    @property
    def endpoints(self) -> set[str]:
        """What its runs were sent to."""
        return {run.endpoint for run in self.runs}

    @property
    def plans(self) -> set[str]:
        """The plans of its runs' prompts."""
        return {run.plan for run in self.runs}

    @property
    def clients(self) -> set[str]:
        """The machines that measured its runs."""
        return {run.client for run in self.runs}

    @property
    def dates(self) -> list[str]:
        """When each run was taken."""
        return [run.date for run in self.runs]

    def without_copies(self) -> Side:
        """The side with each run once: a copy is no repeat."""
        runs = []
        seen = set()
        for run in self.runs:
            if run.identity in seen:
                continue
            runs.append(run)
            if run.identity:
                seen.add(run.identity)
        return replace(self, runs=runs)

    def values(self, key: str) -> list[float]:
        """A figure of every run that measured it."""
        values = []
        for run in self.runs:
            value = run.value(key)
            if value is not None and math.isfinite(value):
                values.append(float(value))
        return values

    def mean(self, key: str) -> float | None:
        """Mean over the runs; None where no run measured it."""
        return _mean_or_none(self.values(key))

    def std(self, key: str) -> float | None:
        """Standard deviation over the runs (ddof 1); None with fewer than two."""
        values = self.values(key)
        if len(values) < 2:
            return None
        return float(np.std(values, ddof=1))

    def mean_of(self, name: str) -> float | None:
        """Mean over the runs of a property of a run, such as `mean_output`.

        None where no run has it.
        """
        values = []
        for run in self.runs:
            value = getattr(run, name)
            if value is not None:
                values.append(value)
        return _mean_or_none(values)


def runs_of(sides: Sequence[Side]) -> list[MeasuredRun]:
    """The runs of all these sides, in order."""
    runs: list[MeasuredRun] = []
    for side in sides:
        runs += side.runs
    return runs


def _mean_or_none(values: Sequence[float]) -> float | None:
    if not values:
        return None
    return math.fsum(values) / len(values)


def ratio_between(base: Side, other: Side, key: str) -> Ratio | RatioWithZeros | None:
    """The ratio other / base of a figure; see `change_intervals.ratio_of`.

    None with fewer than two runs a side.
    """
    return ratio_of(base.values(key), other.values(key))


def is_thin(metric: Metric, *sides: Side) -> bool:
    """Whether a run of these sides has too few values for this percentile.

    The percentile then is close to their maximum.
    """
    least = min(run.values_behind(metric.latency) for run in runs_of(sides))
    return least < metric.least_count
