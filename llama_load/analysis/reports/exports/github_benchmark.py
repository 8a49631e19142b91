"""The lists that github-action-benchmark keeps and charts.

`customSmallerIsBetter` (latencies) and `customBiggerIsBetter` (rates). Source:
benchmark-action/github-action-benchmark, src/extract.ts, extractCustomBenchmarkResult: name, unit
and value, and the texts `range` and `extra`. `range` is the 95 % confidence interval of a
percentile, `extra` the verdict.
"""

from __future__ import annotations

from typing import Any

from llama_load.analysis.results.results import Results
from llama_load.analysis.statistics.statistics import Distribution
from llama_load.run_folder.arithmetic.percentiles import percentile_word
from llama_load.run_folder.vocabulary.definitions import EVERY, of_group

# Rates: attribute of the summary, name, unit.
_RATES = (
    ("request_throughput", "Request throughput", "requests/s"),
    ("request_goodput", "Request goodput", "requests/s"),
    ("output_throughput", "Output token throughput", "tokens/s"),
    ("total_token_throughput", "Total token throughput", "tokens/s"),
    ("success_ratio", "Successful requests", "ratio"),
)


def smaller_is_better(results: Results) -> list[dict[str, Any]]:
    """Mean, median and percentiles of each latency in ms.

    What was not measured, or has too few values, is left out.
    """
    entries = []
    for latency in of_group(EVERY):
        sample = results.total.distributions[latency.key]
        values = {"mean": sample.mean, "median": sample.median}
        for p in sample.percentiles:
            values[percentile_word(p)] = sample.percentile(p)

        for word, value in values.items():
            if value is not None:
                entry = _entry(results, f"{word} {latency.name}", "ms", value)
                entries.append(entry | _range(sample, word))

    return entries


def bigger_is_better(results: Results) -> list[dict[str, Any]]:
    """Rates, and the share of successful requests."""
    entries = []
    for attribute, name, unit in _RATES:
        value = getattr(results.total, attribute)
        if value is not None:
            entries.append(_entry(results, name, unit, value))
    return entries


def _entry(results: Results, name: str, unit: str, value: float) -> dict[str, Any]:
    label = results.run.manifest.label or results.run.manifest.workload
    return {
        "name": f"{label}: {name}",
        "unit": unit,
        "value": value,
        "extra": results.verdict.headline,
    }


def _range(sample: Distribution, word: str) -> dict[str, str]:
    """The interval of a percentile, by its word; empty where none is known."""
    for p, (low, high) in sample.intervals.items():
        if percentile_word(p) == word and low is not None and high is not None:
            return {"range": f"{low:.6g} to {high:.6g}"}
    return {}
