"""The page's list of runs: a row for each, and a small picture of its output over time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from llama_load.analysis.reports.about_run import load, servers
from llama_load.analysis.reports.run_list import run_row
from llama_load.analysis.results.run_summary import SUMMARY, RunSummary, is_number
from llama_load.outside.foreign_text import printable
from llama_load.page.run_files import MOST_RUNS, RunFiles
from llama_load.page.run_view import style_of, summary_in
from llama_load.run_folder import MANIFEST, TABLE
from llama_load.run_folder.foreign_tables import TableLimits, read_table, record_columns

NOT_KNOWN = "–"
# A picture: bars over the time of the run.
BARS = 48
HEIGHT = 20
# Of a table for a picture: 100 000 requests; larger runs have none.
SPARK_LIMITS = TableLimits(cells=600_000, decoded_bytes=32 << 20)


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure as it is shown; of a run in stages the smallest and the largest.

    `value`: for sorting, the largest; None where it is not known.
    """

    value: float | None
    text: str


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run in the list.

    `title` is its label, else what `about` says: workload, load and model. `date` is that of its
    manifest, by which runs are in order; `shown_date` is for people.
    """

    name: str
    title: str
    about: str
    date: str
    shown_date: str
    server: str
    verdict: str
    style: str
    requests: Figure
    tok_per_s: Figure
    ttft_ms: Figure


def listed_runs(files: RunFiles) -> list[ListedRun]:
    """All runs that may be read, the newest first by the time that is shown.

    (A report that is written again changes a folder's time, not the run's.)
    """
    runs = []
    for name in files.names():
        folder = files.folder(name)
        if folder is not None:
            manifest_ns = _changed_ns(folder / MANIFEST)
            summary_ns = _changed_ns(folder / SUMMARY)
            runs.append(_listed_run(files, name, folder, manifest_ns, summary_ns))

    return sorted(runs, key=lambda run: run.date, reverse=True)


def date_of(files: RunFiles, name: str) -> str:
    """When a run began, as in its manifest; empty where it is not known."""
    manifest = files.json(name, MANIFEST) or {}
    return printable(str(manifest.get("date") or ""))


def _changed_ns(file: Path) -> int:
    try:
        return file.lstat().st_mtime_ns
    except OSError:
        return 0


@lru_cache(2 * MOST_RUNS)
def _listed_run(
    files: RunFiles, name: str, folder: Path, manifest_ns: int, summary_ns: int
) -> ListedRun:
    """The row of a run; its files are read again when they were written again."""
    manifest = files.json(name, MANIFEST) or {}
    summary = summary_in(files, name)
    verdict = run_row(folder)[-1]

    def text(key: str) -> str:
        return printable(str(manifest.get(key) or ""))

    # Of a path or owner/name the name: the run's page has the rest.
    model = text("model").rstrip("/").rpartition("/")[2]
    parts = [text("workload"), load(manifest), model]
    about = " · ".join(part for part in parts if part)
    title = text("label") or about or printable(name)

    return ListedRun(
        name=name,
        title=title,
        about="" if about == title else about,
        date=text("date"),
        shown_date=_spaced(text("date")),
        server=", ".join(servers(manifest)),
        verdict=verdict,
        style=style_of(verdict.split(", ")),
        requests=_figure_of_run(summary, "completed", 0),
        tok_per_s=_figure_of_stages(summary, "output_throughput"),
        ttft_ms=_figure_of_stages(summary, "median_ttft_ms"),
    )


def _figure_of_run(summary: RunSummary | None, key: str, digits: int = 1) -> Figure:
    value = None if summary is None else summary.numbers(key).get(key)
    return Figure(value, NOT_KNOWN if value is None else f"{value:,.{digits}f}")


def _figure_of_stages(summary: RunSummary | None, key: str) -> Figure:
    """A figure of the run. Over several loads it is that of none of them: these have a range."""
    if summary is None or len(summary.stages) < 2:
        return _figure_of_run(summary, key)

    values = []
    for stage in summary.stages:
        value = summary.certain(stage).get(key)
        if is_number(value):
            values.append(value)
    if not values:
        return Figure(None, NOT_KNOWN)

    low = f"{min(values):,.0f}"
    high = f"{max(values):,.0f}"
    return Figure(max(values), high if low == high else f"{low} – {high}")


def _spaced(date: str) -> str:
    """`20261122-134330` as `2026-11-22 13:43`; another text as it is."""
    try:
        began = datetime.strptime(date, "%Y%m%d-%H%M%S")
    except ValueError:
        return date
    return began.strftime("%Y-%m-%d %H:%M")


def spark_svg(folder: Path) -> bytes:
    """The output of a run over its time as an SVG; one without bars where it is not known."""
    return _spark(folder, _changed_ns(folder / TABLE))


@lru_cache(MOST_RUNS)
def _spark(folder: Path, changed_ns: int) -> bytes:
    """`changed_ns`: a table that was written again has another picture."""
    columns = record_columns(
        "started_mono_ns", "ended_mono_ns", "output_tokens", "warmup"
    )
    try:
        table = read_table(folder / TABLE, columns, SPARK_LIMITS)
        if table.column_names != columns.names or (folder / TABLE).is_symlink():
            return _svg([])

        measured = ~table["warmup"].to_numpy(zero_copy_only=False).astype(bool)
        started = _floats(table["started_mono_ns"])[measured]
        ended = _floats(table["ended_mono_ns"])[measured]
        tokens = _floats(table["output_tokens"])[measured]
    except (OSError, ValueError):
        return _svg([])

    return _svg(heights(started, ended, tokens))


def _floats(column: Any) -> np.ndarray:
    return np.asarray(column.to_numpy(zero_copy_only=False), float)


def heights(started: np.ndarray, ended: np.ndarray, tokens: np.ndarray) -> list[float]:
    """Tokens in each of `BARS` equal parts of the time, as shares of the largest.

    Those of a request are spread evenly from its start to its end.
    """
    if not len(started) or not ended.max() > started.min():
        return []

    edges = np.linspace(started.min(), ended.max(), BARS + 1)
    lengths_ns = np.maximum(ended - started, 1.0)
    tokens = np.nan_to_num(tokens)
    rates = np.zeros(BARS)
    for place in range(BARS):
        begins = np.maximum(started, edges[place])
        ends = np.minimum(ended, edges[place + 1])
        inside_ns = np.clip(ends - begins, 0, None)
        rates[place] = float((tokens * inside_ns / lengths_ns).sum())

    most = rates.max()
    if most <= 0:
        return []

    shares: list[float] = (rates / most).tolist()

    return shares


def _svg(bars: list[float]) -> bytes:
    width = 2 * BARS
    drawn = ""
    for place, bar in enumerate(bars):
        height = HEIGHT * bar
        corner = f'x="{2 * place}" y="{HEIGHT - height:.1f}"'
        drawn += f'<rect {corner} width="1.6" height="{height:.1f}"/>'

    size = f'width="{width}" height="{HEIGHT}" viewBox="0 0 {width} {HEIGHT}"'

    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} fill="#1f9d74">{drawn}</svg>'.encode()
