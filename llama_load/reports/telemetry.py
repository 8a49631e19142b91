"""Telemetry in the block, in summary.json and in report.md."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from llama_load.analysis.results import Results
from llama_load.metrics.telemetry_figures import TelemetryFigures


def telemetry_json(results: Results) -> dict[str, Any]:
    """The key `telemetry`: figures of the measurement, with the GPUs in use, and of each stage."""
    stages = zip(results.stages, results.telemetry_by_stage, strict=True)
    return _json(results.telemetry) | {"by_stage": {stage.name: _json(figures) for stage, figures in stages}}


def _json(figures: TelemetryFigures) -> dict[str, Any]:
    by_gpu = [asdict(gpu) for gpu in figures.gpus]
    return {"seconds": figures.seconds, **figures.values, "by_gpu": by_gpu, "notes": list(figures.notes)}
