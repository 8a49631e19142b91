"""A comparison as plain values, for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_load.comparison.compare import Comparison
from llama_load.foreign_text import printable_json


def comparisons_json(comparisons: Sequence[tuple[str, Comparison]]) -> dict[str, Any]:
    """The object of `--format json`: one entry per comparison, whose title is its stage or empty."""
    return {"comparisons": [{"title": title, **_comparison(comparison)} for title, comparison in comparisons]}


def _comparison(comparison: Comparison) -> dict[str, Any]:
    labels = [side.label for side in comparison.sides]
    document = {
        "sides": [
            {
                "label": side.label,
                "runs": [run.name for run in side.runs],
                "completed": [run.count("completed") for run in side.runs],
                "failed": [run.failed for run in side.runs],
                "is_ranked": not comparison.is_unreliable(index),
            }
            for index, side in enumerate(comparison.sides)
        ],
        "metrics": [
            {
                "key": metric.key,
                "unit": metric.unit,
                "better": metric.better,
                "values": [side.values(metric.key) for side in comparison.sides],
                "best": sorted(comparison.best.get(metric.key, ())),
                "changes": [_change(comparison, metric.key, index) for index in range(1, len(comparison.sides))],
            }
            for metric in comparison.metrics
        ],
        "not_ranked": [
            {"text": reason.text, "sides": [labels[index] for index in reason.sides], "latency": reason.latency}
            for reason in comparison.reasons
        ],
        "warnings": list(comparison.warnings),
        "setup_differences": {difference.name: list(difference.values) for difference in comparison.differences},
        "gates": [
            {"gate": gate.gate.text, "side": gate.side, "outcome": gate.outcome, "text": gate.text} for gate in comparison.gates
        ],
        "next_commands": list(comparison.next_commands),
    }
    safe: dict[str, Any] = printable_json(document)
    return safe


def _change(comparison: Comparison, key: str, index: int) -> dict[str, Any]:
    change = comparison.changes[key, index]
    low, high = change.interval or (None, None)
    return {
        "side": comparison.sides[index].label,
        "outcome": change.outcome,
        "ratio": change.ratio,
        "low": low,
        "high": high,
        "p_adjusted": change.p,
        "found_from": None if change.found_from is None else dict(zip(("95", "80"), change.found_from, strict=True)),
    }
