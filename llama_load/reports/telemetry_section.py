"""Telemetry in the block, in summary.json and in report.md."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from llama_load.analysis.results import Results
from llama_load.foreign_text import printable
from llama_load.metrics.summary import Summary
from llama_load.metrics.telemetry_figures import FIGURES, TelemetryFigures
from llama_load.reports.layout import TEXT_WIDTH, whole
from llama_load.reports.translations import Translate
from llama_load.tables import Cell, Row, Table, columns, figure, text_lines, text_of
from llama_load.tables.text_width import wrapped

# Of each GPU; and the table with which users compare one GPU with several.
GPU_COLUMNS = ("GPU", "idle", "mean", "peak MiB", "util %", "W", "limit", "°C", "throttled %")
USE_COLUMNS = ("Stage", "GPUs", "VRAM (MiB)", "Output tokens/s", "Output characters/s")
MOST_NAME = 24


def telemetry_json(results: Results) -> dict[str, Any]:
    """The key `telemetry`: figures of the measurement, with the GPUs in use, and of each stage."""
    stages = zip(results.stages, results.telemetry_by_stage, strict=True)
    return _json(results.telemetry) | {"by_stage": {stage.name: _json(figures) for stage, figures in stages}}


def telemetry_table(results: Results, t: Translate) -> Table | None:
    """Name and value of each figure that was measured, with notes; None without any."""
    values = results.telemetry.values
    known = [(row, value) for row in FIGURES if (value := values.get(row.key)) is not None]
    rows: list[Row] = [[t(row.line), Cell(row.shown(value), value)] for row, value in known]
    notes = [printable(note) for note in results.telemetry.notes]
    return Table(t("Telemetry"), columns("", t("measured")), rows, notes) if rows else None


def gpu_table(results: Results, t: Translate) -> Table | None:
    """A row per GPU in use; None without any."""
    rows: list[Row] = []
    for gpu in results.telemetry.gpus:
        name = printable(f"{gpu.gpu} {gpu.name or ''}".strip()[:MOST_NAME])
        ratios = [None if ratio is None else 100 * ratio for ratio in (gpu.utilization, gpu.throttled)]
        memory = (gpu.vram_idle_mib, gpu.vram_mean_mib, gpu.vram_peak_mib)
        cells = (*memory, ratios[0], gpu.watts, gpu.power_limit_watts, gpu.temperature_peak_celsius, ratios[1])
        rows.append([name, *(figure(cell, 0) for cell in cells)])
    return Table(t("GPUs"), columns(*map(t, GPU_COLUMNS)), rows) if rows else None


def telemetry_lines(results: Results) -> Iterable[str]:
    """The section of the block: what was measured, the GPUs, and notes. Nothing without telemetry."""
    if (table := telemetry_table(results, str)) is not None:
        yield from (whole(f"{text_of(name)}:", text_of(value)) for name, value in table.cells)
    if (gpus := gpu_table(results, str)) is not None:
        yield from text_lines(gpus, gap=" ")
    for note in results.telemetry.notes:
        yield from wrapped(note, TEXT_WIDTH, "! ")


def gpu_use_table(results: Results, t: Translate) -> Table | None:
    """A row for the run, or for each stage: number of GPUs, the peak of their memory, output tokens and characters a second. None
    without GPUs."""
    parts: list[tuple[str, Summary, TelemetryFigures]] = [
        (stage.name, stage.figures, telemetry) for stage, telemetry in zip(results.stages, results.telemetry_by_stage, strict=True)
    ] or [("all", results.total, results.telemetry)]
    rows: list[Row] = [
        [
            name,
            *(figure(telemetry.values[key], 0) for key in ("gpus", "vram_peak_mib")),
            figure(figures.output_throughput),
            figure(figures.output_chars_per_s),
        ]
        for name, figures, telemetry in parts
        if telemetry.gpus
    ]
    return Table(t("GPUs"), columns(*map(t, USE_COLUMNS)), rows) if rows else None


def _json(figures: TelemetryFigures) -> dict[str, Any]:
    return {"seconds": figures.seconds, **figures.values, "by_gpu": figures.gpus, "notes": figures.notes}
