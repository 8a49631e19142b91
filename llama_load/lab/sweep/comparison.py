"""The comparison of a sweep: its tables, effects and charts.

Written as sweep.json, table.md and sweep.html.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from llama_load.analysis.reports.translations import translator
from llama_load.ground.languages import Translate
from llama_load.ground.version import __version__
from llama_load.lab.sweep.cell_facts import equal_weights
from llama_load.lab.sweep.cells import Cell, expand
from llama_load.lab.sweep.common_rows import judge_common
from llama_load.lab.sweep.effects import Effect, effects
from llama_load.lab.sweep.folder import DONE, NOT_RUN, write_json, write_text
from llama_load.lab.sweep.frontier import frontier_chart
from llama_load.lab.sweep.grammar import AS_WRITTEN
from llama_load.lab.sweep.llama_bench_rows import rows_of_file
from llama_load.lab.sweep.measured_subject import subject_of
from llama_load.lab.sweep.missing_notes import RowNote, note_texts
from llama_load.lab.sweep.ranking import same_files
from llama_load.lab.sweep.rows import Row, rows_of
from llama_load.lab.sweep.runner import Sweep
from llama_load.lab.sweep.running_server import MEMORY
from llama_load.lab.sweep.sweep_page import best_figure, is_not_ranked, page
from llama_load.lab.sweep.sweep_tables import make_tables
from llama_load.lab.sweep.sweep_words import sweep_words
from llama_load.outside.budget import CommandBudget, one_budget
from llama_load.outside.foreign_files import begin_of
from llama_load.outside.foreign_text import fence, markdown, printable_lines
from llama_load.run_folder import result_schemas
from llama_load.run_folder.result_schemas import VERSIONS
from llama_load.tables import Table, document_lines, table_json, titled_lines

JSON = "sweep.json"
MARKDOWN = "table.md"
MOST_NOTES = 3  # lines under a table on a terminal; table.md has all
LONGEST_NOTE = 120  # of one that stays as it is there
_IN_BRACKETS = re.compile(r" ?\([^()]*\)")
HTML = "sweep.html"
MOST_MEMORY_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class SweepComparison:
    """All that is known of a sweep.

    Tables, effects of settings, memory breakdowns by server, and notes.
    """

    sweep: Sweep
    tables: Sequence[Table]
    effects: Sequence[Effect]
    memory: Sequence[tuple[str, str]]
    notes: Sequence[str]
    rows: Sequence[Row] = ()

    @property
    def title(self) -> str:
        """The plan's title, or a general one."""
        return self.sweep.plan.title or "Sweep"

    @property
    def failed(self) -> int:
        """Cells without a whole run."""
        return sum(self.sweep.entry(cell).reason != "" for cell in self.sweep.cells)


def compare_cells(sweep: Sweep) -> SweepComparison:
    """Read the runs of all cells. Those for which the budget of all is too small have rows with
    that reason."""
    own_rows: list[Row] = []
    with one_budget(CommandBudget(), ends=False):
        for cell, place in zip(sweep.cells, places(sweep), strict=True):
            folder = sweep.folder.run_of(cell)
            own_rows += rows_of(cell, folder, sweep.entry(cell), place)
    judge_common(own_rows)

    rows = list(own_rows)
    for file in sweep.plan.llama_bench_files:
        rows += rows_of_file(Path(file), len(sweep.cells))

    tables = make_tables(sweep.plan, rows)
    # without those of parts that were left out
    tables = [table for table in tables if table.rows] or tables
    return SweepComparison(
        sweep,
        tables,
        effects(sweep.plan, own_rows),
        _memory(sweep),
        _notes_on_rows(sweep, own_rows),
        own_rows,
    )


def _notes_on_rows(sweep: Sweep, rows: Sequence[Row]) -> list[str]:
    """What is to be known of cells and of models, each once."""
    of_cells = []
    for place, cell in enumerate(sweep.cells):
        name = cell.title
        if sweep.plan.repeats > 1:
            name += f", repeat {cell.repeat}"
        for note in sweep.entry(cell).notes:
            of_cells.append(RowNote(place, name, note))

    notes = note_texts(of_cells, len(sweep.cells), sweep_words(sweep.plan.language))
    notes += same_files(sweep.plan, rows)
    notes += equal_weights(sweep.plan, sweep.cells)
    return list(dict.fromkeys(notes))


def places(sweep: Sweep) -> list[int]:
    """Where each cell stands in the plan, whatever the order in which cells run."""
    in_order = expand(replace(sweep.plan, order=AS_WRITTEN))
    place_of = {}
    for place, cell in enumerate(in_order):
        place_of[cell.key] = place

    return [place_of[cell.key] for cell in sweep.cells]


def write_comparison(comparison: SweepComparison) -> list[str]:
    """Write the three files; the lines for a terminal are returned."""
    folder = comparison.sweep.folder.path
    language = comparison.sweep.plan.language
    t = sweep_words(language)
    sections = [
        (t("Effects of settings"), [effect.text for effect in comparison.effects]),
        (t("Notes"), comparison.notes),
    ]
    memory = {}
    for name, text in comparison.memory:
        memory[f"{t('Memory breakdown')}: {name}"] = text

    write_json(folder / JSON, as_json(comparison))

    lines = document_lines(comparison.title, comparison.tables, sections)
    for name, text in memory.items():
        marks = fence(text)
        lines += [
            f"## {markdown(name)}",
            "",
            f"{marks}text",
            *text.splitlines(),
            marks,
            "",
        ]
    write_text(folder / MARKDOWN, "\n".join(lines))

    html = page(
        comparison.title,
        _over(comparison),
        comparison.tables,
        sections,
        memory=memory,
        language=language,
        subject=subject_of(comparison.sweep.folder.runs, language),
        answer=best_figure(comparison.tables),
        first=frontier_chart(
            comparison.rows, comparison.sweep.plan.setting_names, translator(language)
        ),
    )
    write_text(folder / HTML, html)
    lines = _terminal_lines(comparison.tables, sections, memory, t)
    where = t("Sweep folder: {path} ({files})")
    return [*lines, "", where.format(path=folder, files=f"{MARKDOWN}, {HTML}")]


def _over(comparison: SweepComparison) -> str:
    """What became of the cells, in a line."""
    t = sweep_words(comparison.sweep.plan.language)
    over = t("cells: {cells}, {failed} without a result").format(
        cells=len(comparison.sweep.cells), failed=comparison.failed
    )
    rows = [row for table in comparison.tables for row in table.cells]
    not_ranked = sum(any(map(is_not_ranked, row)) for row in rows)
    if not_ranked:
        text = t("; rows that are not ranked: {rows} of {all_rows}")
        over += text.format(rows=not_ranked, all_rows=len(rows))
    return over


def _terminal_lines(
    tables: Sequence[Table],
    sections: Sequence[tuple[str, Sequence[str]]],
    memory: Mapping[str, str],
    t: Translate,
) -> list[str]:
    lines: list[str] = []
    shown: set[str] = set()
    for table in tables:
        notes = [note for note in table.notes if note not in shown]
        shown.update(notes)
        more = len(notes) - MOST_NOTES
        if more > 0:
            listed = t("{count} more notes: {file}")
            last = listed.format(count=more + 1, file=MARKDOWN)
            notes = [*notes[: MOST_NOTES - 1], last]
        notes = list(map(_in_a_line, notes))
        lines += ["", *titled_lines(replace(table, notes=notes))]
    for heading, sentences in sections:
        if sentences:
            lines += ["", f"{heading}:"]
            lines += [f"  {sentence}" for sentence in sentences]
    for name, text in memory.items():
        lines += ["", name, *text.splitlines()]
    return lines


def _in_a_line(note: str) -> str:
    """A long note without its details in brackets and the advice behind its first sentence."""
    if len(note) <= LONGEST_NOTE:
        return note
    text, *rest = _IN_BRACKETS.sub("", note).split("; ")
    return f"{text} …" if rest else text


def as_json(comparison: SweepComparison) -> dict[str, Any]:
    """sweep.json: every cell with its run folder and outcome, the tables, the effects.

    Tables are texts and figures.
    """
    return {
        result_schemas.KEY: VERSIONS[result_schemas.SWEEP],
        "version": __version__,
        "title": comparison.title,
        "cells": [
            _cell_json(comparison.sweep, cell) for cell in comparison.sweep.cells
        ],
        "tables": [table_json(table) for table in comparison.tables],
        "effects": [asdict(effect) for effect in comparison.effects],
        "memory": dict(comparison.memory),
    }


def _cell_json(sweep: Sweep, cell: Cell) -> dict[str, Any]:
    entry = sweep.entry(cell)
    run = sweep.folder.run_of(cell).relative_to(sweep.folder.path)
    return {
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
    }


def _memory(sweep: Sweep) -> list[tuple[str, str]]:
    """The memory breakdowns that servers printed, each once, with the first cell that it is of."""
    memory: dict[str, str] = {}
    for cell in sweep.cells:
        file = sweep.folder.servers / cell.folder / MEMORY
        if not file.is_file():
            continue
        try:
            data = begin_of(file, MOST_MEMORY_BYTES, inside=sweep.folder.path)
        except (OSError, ValueError):  # a link that leads out; too much in all
            continue
        printed = data.decode("utf-8", "replace")
        server = ", ".join([cell.server.label, *cell.setting_texts])
        memory.setdefault(server, printable_lines(printed.rstrip("\n")))
    return list(memory.items())
