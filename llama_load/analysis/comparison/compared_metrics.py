"""The metrics that runs are compared by, under their keys in summary.json."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from llama_load.analysis.figures.telemetry_figures import FIGURES as TELEMETRY
from llama_load.run_folder.arithmetic.percentiles import least_count
from llama_load.run_folder.vocabulary.definitions import (
    BY_KEY,
    EVERY,
    FIGURE_BY_KEY,
    FIGURES,
    HIGHER,
    LOWER,
    SCHEDULED,
    of_group,
)
from llama_load.tables.numbers import decimals_of

_STATISTIC = re.compile(
    r"(?P<word>mean|median|std|p(?P<p>\d{1,2}(?:\.\d{1,6})?))_(?P<latency>\w+)_ms"
)
DECIMALS = 2
# Not the peaks: the largest of many values is as random as any extreme.
_SHOWN_FIGURES = tuple(figure.key for figure in FIGURES if figure.is_rate)
# Figures of telemetry by which runs are compared; of both less is better. Not memory: repeats do
# not show how it varies, since the server keeps what it has taken.
_RESOURCES = ("joules_per_output_token", "cost_per_million_output_tokens")
_TELEMETRY = {figure.key: figure for figure in TELEMETRY if figure.key in _RESOURCES}
# Headings of tables, where the names of the block are too long.
_SHORT = {
    "request_throughput": "Req/s",
    "request_goodput": "Goodput req/s",
    "output_throughput": "Output tok/s",
    "total_token_throughput": "Total tok/s",
    "duration": "Duration (s)",
    "joules_per_output_token": "J per output token",
    "cost_per_million_output_tokens": "Cost per M tokens",
}


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure that runs are compared by.

    `better`: HIGHER, LOWER, or empty where neither is; `latency`: the key of its latency,
    `percentile` if it is one; `unit`: ms, s, req/s, tok/s, or empty; `decimals`: as shown.
    """

    key: str
    name: str
    unit: str
    better: str
    latency: str | None = None
    percentile: float | None = None
    decimals: int = DECIMALS

    @property
    def short(self) -> str:
        """Its heading in a table, with the unit: `Output tok/s`, `Mean TTFT (ms)`."""
        if self.key in _SHORT:
            return _SHORT[self.key]
        if self.unit:
            return f"{self.name} ({self.unit})"
        return self.name

    @property
    def least_count(self) -> int:
        """How many values it needs: 100 for a p99, 1 for a mean."""
        if self.percentile is None:
            return 1
        return least_count(self.percentile)

    def decimals_for(self, values: Iterable[float]) -> int:
        """Decimals for these values of it: energy and cost of a token may be far below 1."""
        if self.key not in _TELEMETRY:
            return self.decimals

        decimals = self.decimals
        for value in values:
            decimals = max(decimals, decimals_of(value, self.decimals))

        return decimals

    def sign(self) -> int:
        """+1 where a higher value is better, -1 where a lower one is, 0 where neither is."""
        return {HIGHER: 1, LOWER: -1}.get(self.better, 0)


def metric_of(key: str) -> Metric | None:
    """The metric with this key of summary.json: `p99_ttft_ms`, `output_throughput`.

    None: no such metric.
    """
    figure = FIGURE_BY_KEY.get(key)
    if figure is not None:
        name = _without_unit(figure.line) or key.replace("_", " ")
        return Metric(key, name, figure.unit, figure.better)
    resource = _TELEMETRY.get(key)
    if resource is not None:
        name = _without_unit(resource.line)
        return Metric(key, name, "", LOWER, decimals=resource.decimals)

    match = _STATISTIC.fullmatch(key)
    if match is None:
        return None

    latency = BY_KEY.get(match["latency"])
    if latency is None:
        return None

    word = match["word"]
    name = f"{word.capitalize()} {latency.name}"
    better = LOWER
    if word == "std":
        better = ""

    percentile = None
    if match["p"]:
        percentile = float(match["p"])

    return Metric(key, name, "ms", better, latency.key, percentile)


def _without_unit(line: str) -> str:
    """The name of a line of the block: `Request throughput (req/s)`."""
    return line.partition(" (")[0]


def metrics_in(runs: Iterable[Mapping[str, object]]) -> list[Metric]:
    """The metrics that these runs have values of, in the order of the block.

    Rates, then mean, median and percentiles of each latency, then energy and cost. `runs`: the
    values of each, by key.
    """
    known: dict[str, Metric] = {}
    for values in runs:
        for key, value in values.items():
            metric = metric_of(key)
            if value is not None and metric is not None:
                known[key] = metric

    percentiles = set()
    for metric in known.values():
        if metric.percentile is not None:
            percentiles.add(metric.percentile)

    words = ["mean", "median"]
    for percentile in sorted(percentiles):
        words.append(f"p{percentile:g}")

    keys = list(_SHOWN_FIGURES)
    for latency in of_group(EVERY, SCHEDULED):
        for word in words:
            keys.append(f"{word}_{latency.key}_ms")

    keys += _RESOURCES

    return [known[key] for key in keys if key in known]
