"""A row per run folder, from run.json and summary.json of any version."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from llama_load.analysis.run_summary import SUMMARY, read_summary
from llama_load.foreign_files import read_foreign_json
from llama_load.foreign_text import printable
from llama_load.reports.about_run import server_urls
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
    *(Column(name) for name in ("tok/s", "TTFT median", "TTFT p99")),
    Column("verdict", LEFT),
)


def run_lines(rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """The rows under their headings as a table. Where it is wider than `width`, columns are left out."""
    return text_lines(Table("Runs", COLUMNS, rows), width)


def run_rows(folder: Path) -> list[tuple[str, ...]]:
    """The cells of `COLUMNS` of every run folder in `folder`, or of `folder` itself if it is one; the oldest first."""
    folders = [folder] if (folder / MANIFEST).is_file() else [file.parent for file in folder.glob(f"*/{MANIFEST}")]
    rows = [run_row(path) for path in folders]
    return sorted(rows, key=lambda row: (row[1], row[0]))


def run_row(folder: Path) -> tuple[str, ...]:
    """The cells of `COLUMNS` of a run folder."""
    try:
        manifest = read_foreign_json(folder / MANIFEST)
    except (OSError, ValueError):
        return (printable(folder.name), "", "", "", "", "", "", "", f"broken: {MANIFEST} cannot be read")
    about = [
        printable(folder.name),
        printable(str(manifest.get("date") or "")),
        printable(str(manifest.get("label") or manifest.get("workload") or "")),
        ", ".join(server_urls(manifest)),
    ]
    try:
        summary = read_summary(folder)
    except (OSError, ValueError):
        ended = manifest.get("end") != "running"
        why = f"broken: {SUMMARY} cannot be read" if ended else "still running, or killed: llama-load report writes its results"
        return (*about, "", "", "", "", why)
    keys = ("completed", "output_throughput", "median_ttft_ms", "p99_ttft_ms")
    known = summary.numbers(*keys)
    cells = (str(value) if isinstance(value := known.get(key), int) else fixed(value) for key in keys)
    return (*about, *cells, summary.shown or NONE)
