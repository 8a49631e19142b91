"""The comparison of a sweep: its tables, effects and charts, written as sweep.json, table.md and sweep.html."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from llama_load.foreign_files import begin_of
from llama_load.foreign_text import fence, markdown, printable_lines
from llama_load.lab.sweep.cells import expand
from llama_load.lab.sweep.common_requests import judge_common
from llama_load.lab.sweep.effects import Effect, effects
from llama_load.lab.sweep.folder import DONE, NOT_RUN, write_json, write_text
from llama_load.lab.sweep.grammar import AS_WRITTEN
from llama_load.lab.sweep.llama_bench_rows import rows_of_file
from llama_load.lab.sweep.ranking import same_files
from llama_load.lab.sweep.rows import Row, rows_of
from llama_load.lab.sweep.runner import Sweep
from llama_load.lab.sweep.running_server import MEMORY
from llama_load.lab.sweep.sweep_page import page
from llama_load.lab.sweep.sweep_tables import make_tables
from llama_load.languages import CHINESE, ENGLISH
from llama_load.tables import Table, document_lines, table_json, titled_lines
from llama_load.units import quantity
from llama_load.version import __version__

JSON, MARKDOWN, HTML = "sweep.json", "table.md", "sweep.html"
MOST_MEMORY_BYTES = 64 * 1024
# Headings beside those of columns.
WORDS = {
    ENGLISH: {"effects": "Effects of settings", "notes": "Notes", "memory": "Memory breakdown"},
    CHINESE: {"effects": "设置的影响", "notes": "备注", "memory": "内存占用"},
}


@dataclass(frozen=True, slots=True)
class SweepComparison:
    """All that is known of a sweep: tables, effects of settings, memory breakdowns by server, and notes."""

    sweep: Sweep
    tables: Sequence[Table]
    effects: Sequence[Effect]
    memory: Sequence[tuple[str, str]]
    notes: Sequence[str]

    @property
    def title(self) -> str:
        """The plan's title, or a general one."""
        return self.sweep.plan.title or "Sweep"

    @property
    def failed(self) -> int:
        """Cells without a whole run."""
        return sum(self.sweep.entry(cell).reason != "" for cell in self.sweep.cells)


def compare_cells(sweep: Sweep) -> SweepComparison:
    """Read the runs of all cells."""
    rows: list[Row] = []
    for cell, place in zip(sweep.cells, places(sweep), strict=True):
        rows += rows_of(cell, sweep.folder.run_of(cell), sweep.entry(cell), place)
    judge_common(rows)
    own = list(rows)
    for file in sweep.plan.llama_bench_files:
        rows += rows_of_file(Path(file), len(sweep.cells))
    notes = []
    for cell in sweep.cells:
        name = cell.title + (f", repeat {cell.repeat}" if sweep.plan.repeats > 1 else "")
        notes += [f"{name}: {note}" for note in sweep.entry(cell).notes]
    notes += same_files(sweep.plan, own)
    tables = make_tables(sweep.plan, rows)
    tables = [table for table in tables if table.rows] or tables  # without those of parts that were left out
    return SweepComparison(sweep, tables, effects(sweep.plan, own), _memory(sweep), list(dict.fromkeys(notes)))


def places(sweep: Sweep) -> list[int]:
    """Where each cell stands in the plan, whatever the order in which cells run."""
    written = {cell.key: place for place, cell in enumerate(expand(replace(sweep.plan, order=AS_WRITTEN)))}
    return [written[cell.key] for cell in sweep.cells]


def write_comparison(comparison: SweepComparison) -> list[str]:
    """Write the three files; the lines for a terminal are returned."""
    folder = comparison.sweep.folder.path
    write_json(folder / JSON, as_json(comparison))
    words = WORDS[comparison.sweep.plan.language]
    sections = [(words["effects"], [effect.text for effect in comparison.effects]), (words["notes"], comparison.notes)]
    lines = document_lines(comparison.title, comparison.tables, sections)
    memory = {f"{words['memory']}: {name}": text for name, text in comparison.memory}
    for name, text in memory.items():
        marks = fence(text)
        lines += [f"## {markdown(name)}", "", f"{marks}text", *text.splitlines(), marks, ""]
    write_text(folder / MARKDOWN, "\n".join(lines))
    over = f"{quantity(len(comparison.sweep.cells), 'cell')}, {comparison.failed} without a result"
    language = comparison.sweep.plan.language
    write_text(folder / HTML, page(comparison.title, over, comparison.tables, sections, memory=memory, language=language))
    printed = [line for table in comparison.tables for line in ["", *titled_lines(table)]]
    for heading, sentences in sections:
        printed += ["", f"{heading}:", *(f"  {sentence}" for sentence in sentences)] if sentences else []
    for name, text in memory.items():
        printed += ["", name, *text.splitlines()]
    return printed


def as_json(comparison: SweepComparison) -> dict[str, Any]:
    """sweep.json: every cell with its run folder and outcome, the tables as texts and figures, the effects."""
    sweep = comparison.sweep
    cells = []
    for cell in sweep.cells:
        entry, run = sweep.entry(cell), sweep.folder.run_of(cell).relative_to(sweep.folder.path)
        cells.append({
            "title": cell.title,
            "server": cell.server.name,
            "settings": cell.settings,
            "workload": cell.workload.label,
            "load": cell.load.label,
            "repeat": cell.repeat,
            "status": entry.status,
            "reason": entry.reason,
            "run": str(run) if entry.status == DONE else None,
            "took_s": None if entry.status == NOT_RUN else entry.took_s,
            "extra": entry.extra,
            "notes": entry.notes,
        })  # fmt: skip
    return {
        "version": __version__,
        "title": comparison.title,
        "cells": cells,
        "tables": [table_json(table) for table in comparison.tables],
        "effects": [asdict(effect) for effect in comparison.effects],
        "memory": dict(comparison.memory),
    }


def _memory(sweep: Sweep) -> list[tuple[str, str]]:
    """The memory breakdowns that servers printed, each once, with the first cell that it is of."""
    memory: dict[str, str] = {}
    for cell in sweep.cells:
        file = sweep.folder.servers / cell.folder / MEMORY
        if file.is_file():
            printed = begin_of(file, MOST_MEMORY_BYTES).decode("utf-8", "replace")
            text = printable_lines(printed.rstrip("\n"))
            settings = ", ".join([cell.server.label, *(f"{name}={label}" for name, label in cell.settings.items())])
            memory.setdefault(settings, text)
    return list(memory.items())
