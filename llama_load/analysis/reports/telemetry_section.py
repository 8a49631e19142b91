"""Telemetry in the block, in summary.json and in report.md."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from llama_load.analysis.figures.summary import Summary
from llama_load.analysis.figures.telemetry_figures import FIGURES, TelemetryFigures
from llama_load.analysis.reports.layout import TEXT_WIDTH, whole
from llama_load.analysis.results.results import Results
from llama_load.ground.languages import Translate
from llama_load.outside.foreign_text import printable
from llama_load.tables import Cell, Row, Table, columns, figure, text_lines, text_of
from llama_load.tables.text_width import wrapped

# Of each GPU; and the table with which users compare one GPU with several.
GPU_COLUMNS = (
    "GPU",
    "idle",
    "mean",
    "peak MiB",
    "util %",
    "W",
    "limit",
    "°C",
    "throttled %",
)
USE_COLUMNS = ("Stage", "GPUs", "VRAM (MiB)", "Output tokens/s", "Output characters/s")
MOST_NAME = 24


def telemetry_json(results: Results) -> dict[str, Any]:
    """The key `telemetry`: figures of the measurement, with the GPUs in use, and of each stage."""
    by_stage = {}
    for stage, figures in zip(results.stages, results.telemetry_by_stage, strict=True):
        by_stage[stage.name] = _figures_json(figures)
    return _figures_json(results.telemetry) | {"by_stage": by_stage}


def telemetry_table(results: Results, t: Translate) -> Table | None:
    """Name and value of each figure that was measured, with notes; None without any."""
    telemetry = results.telemetry
    rows: list[Row] = []
    for definition in FIGURES:
        value = telemetry.values.get(definition.key)
        if value is not None:
            rows.append([t(definition.line), Cell(definition.shown(value), value)])

    if not rows:
        return None

    notes = [printable(note) for note in telemetry.notes]

    return Table(t("Telemetry"), columns("", t("measured")), rows, notes)


def gpu_table(results: Results, t: Translate) -> Table | None:
    """A row per GPU in use; None without any."""
    if not results.telemetry.gpus:
        return None

    rows: list[Row] = []
    for gpu in results.telemetry.gpus:
        name = f"{gpu.gpu} {gpu.name or ''}".strip()
        row: Row = [
            printable(name[:MOST_NAME]),
            figure(gpu.vram_idle_mib, 0),
            figure(gpu.vram_mean_mib, 0),
            figure(gpu.vram_peak_mib, 0),
            _percent(gpu.utilization),
            figure(gpu.watts, 0),
            figure(gpu.power_limit_watts, 0),
            figure(gpu.temperature_peak_celsius, 0),
            _percent(gpu.throttled),
        ]
        rows.append(row)

    return Table(t("GPUs"), columns(*map(t, GPU_COLUMNS)), rows)


def _percent(ratio: float | None) -> Cell:
    if ratio is None:
        return figure(None)
    return figure(100 * ratio, 0)


def telemetry_lines(results: Results) -> Iterable[str]:
    """The section of the block: what was measured, the GPUs, and notes.

    Nothing without telemetry.
    """
    table = telemetry_table(results, str)
    if table is not None:
        for name, value in table.cells:
            yield whole(f"{text_of(name)}:", text_of(value))

    gpus = gpu_table(results, str)
    if gpus is not None:
        yield from text_lines(gpus, gap=" ")

    for note in results.telemetry.notes:
        yield from wrapped(note, TEXT_WIDTH, "! ")


def gpu_use_table(results: Results, t: Translate) -> Table | None:
    """A row for the run, or for each stage; None without GPUs.

    Number of GPUs, the peak of their memory, output tokens and characters a second.
    """
    rows: list[Row] = []
    for stage, telemetry in zip(
        results.stages, results.telemetry_by_stage, strict=True
    ):
        if telemetry.gpus:
            rows.append(_use_row(stage.name, stage.figures, telemetry))

    if not results.stages and results.telemetry.gpus:
        rows.append(_use_row("all", results.total, results.telemetry))
    if not rows:
        return None

    return Table(t("GPUs"), columns(*map(t, USE_COLUMNS)), rows)


def _use_row(name: str, figures: Summary, telemetry: TelemetryFigures) -> Row:
    return [
        name,
        figure(telemetry.values["gpus"], 0),
        figure(telemetry.values["vram_peak_mib"], 0),
        figure(figures.output_throughput),
        figure(figures.output_chars_per_s),
    ]


def _figures_json(figures: TelemetryFigures) -> dict[str, Any]:
    return {
        "seconds": figures.seconds,
        **figures.values,
        "by_gpu": figures.gpus,
        "notes": figures.notes,
    }
