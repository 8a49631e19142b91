"""A row per run folder, from run.json and summary.json of any version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.cells import cell_len

from llama_load.analysis.keys import certain
from llama_load.foreign_files import read_foreign
from llama_load.foreign_text import printable
from llama_load.reports.layout import in_columns
from llama_load.run_folder import MANIFEST

COLUMNS = ("folder", "date", "label", "server", "requests", "tok/s", "TTFT median", "TTFT p99", "verdict")
SUMMARY = "summary.json"
NEITHER = "n/a"


def run_lines(rows: Sequence[Sequence[str]], width: int | None) -> Iterable[str]:
    """The rows under their headings as a table. Where it is wider than `width`, columns are left out: first the date, which most
    folder names contain, then the server, the label, the number of requests."""
    table: list[Sequence[str]] = [COLUMNS, *rows]
    for dropped in ("date", "server", "label", "requests"):
        if width is None or max(map(cell_len, in_columns(table, gap="  "))) <= width:
            break
        place = table[0].index(dropped)
        table = [[*row[:place], *row[place + 1 :]] for row in table]
    return in_columns(table, gap="  ")


def run_rows(folder: Path) -> list[tuple[str, ...]]:
    """The cells of `COLUMNS` of every run folder in `folder`, or of `folder` itself if it is one; the oldest first."""
    folders = [folder] if (folder / MANIFEST).is_file() else [file.parent for file in folder.glob(f"*/{MANIFEST}")]
    rows = [run_row(each) for each in folders]
    return sorted(rows, key=lambda row: (row[1], row[0]))


def run_row(folder: Path) -> tuple[str, ...]:
    """The cells of `COLUMNS` of a run folder."""
    manifest = _read(folder / MANIFEST)
    if manifest is None:
        return (printable(folder.name), "", "", "", "", "", "", "", f"broken: {MANIFEST} cannot be read")
    about = [
        printable(folder.name),
        printable(str(manifest.get("date") or "")),
        printable(str(manifest.get("label") or manifest.get("workload") or "")),
        ", ".join(printable(url) for url in _urls(manifest)),
    ]
    summary = _read(folder / SUMMARY)
    if summary is None:
        ended = manifest.get("end") != "running"
        why = f"broken: {SUMMARY} cannot be read" if ended else "still running, or killed: llama-load report writes its results"
        return (*about, "", "", "", "", why)
    ours = summary.get("llama_load")
    doubts = ours.get("uncertain") if isinstance(ours, dict) else None
    if isinstance(doubts, dict):
        summary = certain(summary, doubts)
    figures = ("completed", "output_throughput", "median_ttft_ms", "p99_ttft_ms")
    return (*about, *(_cell(summary.get(key)) for key in figures), _verdict(summary))


def _urls(manifest: Mapping[str, Any]) -> Iterator[str]:
    targets = manifest.get("targets")
    for target in targets if isinstance(targets, list) else ():
        if isinstance(target, dict) and target.get("url"):
            yield str(target["url"])


def _verdict(summary: Mapping[str, Any]) -> str:
    ours = summary.get("llama_load")
    verdict = ours.get("verdict") if isinstance(ours, dict) else None
    words = verdict.get("words") or [verdict.get("word")] if isinstance(verdict, dict) else None
    return ", ".join(printable(str(word)) for word in words) if isinstance(words, list) and all(words) else NEITHER


def _cell(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return NEITHER
    return str(value) if isinstance(value, int) else f"{value:.2f}"


def _read(file: Path) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(read_foreign(file))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
