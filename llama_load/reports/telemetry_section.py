"""Telemetry in the block, in summary.json and in report.md."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from llama_load.analysis.results import Results
from llama_load.metrics.summary import Summary
from llama_load.metrics.telemetry_figures import FIGURES, GpuFigures, TelemetryFigures
from llama_load.reports.layout import TEXT_WIDTH, in_columns, whole, wrapped

GPU_COLUMNS = ("GPU", "idle", "mean", "peak MiB", "util %", "W", "limit", "°C", "throttled %")
# The table with which users compare one GPU with several.
TABLE_COLUMNS = ("Stage", "GPUs", "VRAM (MiB)", "Output tokens/s", "Output characters/s")
MOST_NAME = 24


def telemetry_json(results: Results) -> dict[str, Any]:
    """The key `telemetry`: figures of the measurement, with the GPUs in use, and of each stage."""
    stages = zip(results.stages, results.telemetry_by_stage, strict=True)
    return _json(results.telemetry) | {"by_stage": {stage.name: _json(figures) for stage, figures in stages}}


def telemetry_lines(results: Results) -> Iterable[str]:
    """The section of the block: what was measured, the GPUs, and notes. Nothing without telemetry."""
    figures = results.telemetry
    for figure in FIGURES:
        value = figures.values.get(figure.key)
        if value is not None:
            yield whole(f"{figure.line}:", figure.shown(value))
    if figures.gpus:
        yield from in_columns([GPU_COLUMNS, *map(gpu_cells, figures.gpus)])
    for note in figures.notes:
        yield from wrapped(note, TEXT_WIDTH, "! ")


def telemetry_rows(results: Results) -> list[tuple[str, str]]:
    """Name and value of each figure that was measured."""
    values = results.telemetry.values
    return [(figure.line, figure.shown(value)) for figure in FIGURES if (value := values.get(figure.key)) is not None]


def gpu_table(results: Results) -> list[tuple[str, ...]]:
    """A row for the run, or for each stage: number of GPUs, the peak of their memory, output tokens and characters a second. Empty
    without GPUs."""
    parts: list[tuple[str, Summary, TelemetryFigures]] = [
        (stage.name, stage.figures, telemetry) for stage, telemetry in zip(results.stages, results.telemetry_by_stage, strict=True)
    ] or [("all", results.total, results.telemetry)]
    return [
        (
            name,
            *(
                "n/a" if value is None else f"{value:.{decimals}f}"
                for value, decimals in (
                    (telemetry.values["gpus"], 0),
                    (telemetry.values["vram_peak_mib"], 0),
                    (figures.output_throughput, 2),
                    (figures.output_chars_per_s, 2),
                )
            ),
        )
        for name, figures, telemetry in parts
        if telemetry.gpus
    ]


def gpu_cells(gpu: GpuFigures) -> tuple[str, ...]:
    """The cells of `GPU_COLUMNS` of one GPU."""
    name = f"{gpu.gpu} {gpu.name or ''}".strip()[:MOST_NAME]
    ratios = [None if each is None else 100 * each for each in (gpu.utilization, gpu.throttled)]
    memory = (gpu.vram_idle_mib, gpu.vram_mean_mib, gpu.vram_peak_mib)
    cells = (*memory, ratios[0], gpu.watts, gpu.power_limit_watts, gpu.temperature_peak_celsius, ratios[1])
    return name, *("n/a" if each is None else f"{each:.0f}" for each in cells)


def _json(figures: TelemetryFigures) -> dict[str, Any]:
    by_gpu = [asdict(gpu) for gpu in figures.gpus]
    return {"seconds": figures.seconds, **figures.values, "by_gpu": by_gpu, "notes": list(figures.notes)}
