"""A comparison as plain values, for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_load.analysis.comparison.compare import Comparison
from llama_load.analysis.comparison.compared_metrics import Metric
from llama_load.analysis.comparison.gates import GateResult
from llama_load.analysis.comparison.reasons import Reason
from llama_load.outside.foreign_text import printable_json


def comparisons_json(comparisons: Sequence[tuple[str, Comparison]]) -> dict[str, Any]:
    """The object of `--format json`: an entry per comparison.

    Its title is its stage, or empty.
    """
    entries = []
    for title, comparison in comparisons:
        entries.append({"title": title, **_comparison_json(comparison)})
    return {"comparisons": entries}


def _comparison_json(comparison: Comparison) -> dict[str, Any]:
    setup_differences = {}
    for difference in comparison.differences:
        setup_differences[difference.name] = list(difference.values)

    document = {
        "sides": [_side(comparison, index) for index in range(len(comparison.sides))],
        "metrics": [_metric(comparison, metric) for metric in comparison.metrics],
        "not_ranked": [_reason(comparison, reason) for reason in comparison.reasons],
        "warnings": list(comparison.warnings),
        "setup_differences": setup_differences,
        "gates": list(map(_gate, comparison.gates)),
        "next_commands": list(comparison.next_commands),
    }
    safe: dict[str, Any] = printable_json(document)
    return safe


def _side(comparison: Comparison, index: int) -> dict[str, Any]:
    side = comparison.sides[index]
    return {
        "label": side.label,
        "runs": [run.name for run in side.runs],
        "completed": [run.count("completed") for run in side.runs],
        "failed": [run.failed for run in side.runs],
        "is_ranked": not comparison.is_unreliable(index),
    }


def _metric(comparison: Comparison, metric: Metric) -> dict[str, Any]:
    changes = []
    for index in range(1, len(comparison.sides)):
        changes.append(_change(comparison, metric.key, index))

    return {
        "key": metric.key,
        "unit": metric.unit,
        "better": metric.better,
        "values": [side.values(metric.key) for side in comparison.sides],
        "best": sorted(comparison.best.get(metric.key, ())),
        "changes": changes,
    }


def _change(comparison: Comparison, key: str, index: int) -> dict[str, Any]:
    change = comparison.changes[key, index]
    low, high = change.interval or (None, None)
    found_from = None
    if change.found_from is not None:
        surely, often = change.found_from
        found_from = {"95": surely, "80": often}

    return {
        "side": comparison.sides[index].label,
        "outcome": change.outcome,
        "ratio": change.ratio,
        "low": low,
        "high": high,
        "p_adjusted": change.p,
        "found_from": found_from,
    }


def _reason(comparison: Comparison, reason: Reason) -> dict[str, Any]:
    return {
        "text": reason.text,
        "sides": [comparison.sides[index].label for index in reason.sides],
        "latency": reason.latency,
    }


def _gate(result: GateResult) -> dict[str, Any]:
    return {
        "gate": result.gate.text,
        "side": result.side,
        "outcome": result.outcome,
        "text": result.text,
    }
