"""A row per run folder, from run.json and summary.json of any version."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from llama_load.analysis.reports.about_run import server_urls
from llama_load.analysis.results.budget_of_command import budget_of_command
from llama_load.analysis.results.run_summary import SUMMARY, read_summary
from llama_load.outside.foreign_files import read_foreign_json
from llama_load.outside.foreign_text import printable
from llama_load.run_folder import MANIFEST
from llama_load.tables import LEFT, Column, Table, text_lines
from llama_load.tables.numbers import NONE, fixed

# Where a terminal is too narrow, the date is left out first, which most folder names contain.
COLUMNS = (
    Column("folder", LEFT),
    Column("date", LEFT, drop=4),
    Column("label", LEFT, drop=2),
    Column("server", LEFT, drop=3),
    Column("requests", drop=1),
    Column("tok/s"),
    Column("TTFT median"),
    Column("TTFT p99"),
    Column("verdict", LEFT),
)
# The figures of `COLUMNS`, by their keys in summary.json.
_FIGURE_KEYS = ("completed", "output_throughput", "median_ttft_ms", "p99_ttft_ms")
_NO_FIGURES = ("",) * len(_FIGURE_KEYS)


def run_lines(rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """The rows as a table under their headings.

    Where it is wider than `width`, columns are left out.
    """
    return text_lines(Table("Runs", COLUMNS, rows), width)


def run_rows(folder: Path) -> list[tuple[str, ...]]:
    """The cells of `COLUMNS` of every run folder in `folder`, the oldest first.

    If `folder` is a run folder itself, there is one row. Raises UsageError where they take more
    than the budget of a command.
    """
    if (folder / MANIFEST).is_file():
        folders = [folder]
    else:
        folders = [file.parent for file in folder.glob(f"*/{MANIFEST}")]
    with budget_of_command():
        return sorted(map(run_row, folders), key=_date_and_folder)


def _date_and_folder(row: tuple[str, ...]) -> tuple[str, str]:
    return row[1], row[0]


def run_row(folder: Path) -> tuple[str, ...]:
    """The cells of `COLUMNS` of a run folder."""
    name = printable(folder.name)
    try:
        manifest = read_foreign_json(folder / MANIFEST, inside=folder)
    except (OSError, ValueError):
        return (name, "", "", "", *_NO_FIGURES, f"broken: {MANIFEST} cannot be read")

    date = printable(str(manifest.get("date") or ""))
    label = printable(str(manifest.get("label") or manifest.get("workload") or ""))
    about = (name, date, label, ", ".join(server_urls(manifest)))
    try:
        summary = read_summary(folder)
    except (OSError, ValueError):
        why = "still running, or killed: llama-load report writes its results"
        if manifest.get("end") != "running":
            why = f"broken: {SUMMARY} cannot be read"
        return (*about, *_NO_FIGURES, why)

    known = summary.numbers(*_FIGURE_KEYS)
    figures = [_figure_text(known.get(key)) for key in _FIGURE_KEYS]

    return (*about, *figures, summary.shown or NONE)


def _figure_text(value: float | None) -> str:
    if isinstance(value, int):
        return str(value)
    return fixed(value)
