"""The page's list of runs: a row for each, and a small picture of its output over time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from llama_load.analysis.run_summary import SUMMARY
from llama_load.foreign_text import printable
from llama_load.reports.about_run import load, servers
from llama_load.reports.run_list import run_row
from llama_load.run_folder import MANIFEST, TABLE
from llama_load.run_folder.foreign_tables import TableLimits, read_table, record_columns
from llama_load.web.run_files import MOST_RUNS, RunFiles
from llama_load.web.run_view import headline_figures, style_of

# A picture: bars over the time of the run.
BARS, HEIGHT = 48, 20
# Of a table for a picture: 100 000 requests; larger runs have none.
SPARK_LIMITS = TableLimits(cells=600_000, decoded_bytes=32 << 20)


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run in the list; `numbers` for sorting are None where they are not known."""

    name: str
    label: str
    date: str
    server: str
    model: str
    load: str
    verdict: str
    style: str
    requests: float | None
    tok_per_s: float | None
    ttft_ms: float | None


def listed_runs(files: RunFiles) -> list[ListedRun]:
    """All runs that may be read, the newest first."""
    runs = []
    for name in files.names():
        folder = files.folder(name)
        if folder is not None:
            runs.append(_listed(files, name, folder, _changed_ns(folder / MANIFEST), _changed_ns(folder / SUMMARY)))
    return runs


def _changed_ns(file: Path) -> int:
    try:
        return file.lstat().st_mtime_ns
    except OSError:
        return 0


@lru_cache(2 * MOST_RUNS)
def _listed(files: RunFiles, name: str, folder: Path, manifest_ns: int, summary_ns: int) -> ListedRun:
    """The row of a run; its files are read again when they were written again."""
    manifest, figures = files.json(name, MANIFEST) or {}, headline_figures(files, name)
    verdict = run_row(folder)[-1]
    label, date, model = (printable(str(manifest.get(key) or "")) for key in ("label", "date", "model"))
    return ListedRun(
        name=name,
        label=label or printable(str(manifest.get("workload") or "")) or printable(name),
        date=_spaced(date),
        server=", ".join(servers(manifest)),
        model=model,
        load=load(manifest),
        verdict=verdict,
        style=style_of(verdict.split(", ")),
        requests=figures.get("completed"),
        tok_per_s=figures.get("output_throughput"),
        ttft_ms=figures.get("median_ttft_ms"),
    )


def _spaced(date: str) -> str:
    """`20261122-134330` as `2026-11-22 13:43`; another text as it is."""
    day, _, time = date.partition("-")
    return f"{day[:4]}-{day[4:6]}-{day[6:]} {time[:2]}:{time[2:4]}" if day.isdigit() and len(day) == 8 and time.isdigit() else date


def spark_svg(folder: Path) -> bytes:
    """The output of a run over its time as an SVG; one without bars where it is not known."""
    return _spark(folder, _changed_ns(folder / TABLE))


@lru_cache(MOST_RUNS)
def _spark(folder: Path, changed_ns: int) -> bytes:
    """`changed_ns`: a table that was written again has another picture."""
    columns = record_columns("started_mono_ns", "ended_mono_ns", "output_tokens", "warmup")
    try:
        table = read_table(folder / TABLE, columns, SPARK_LIMITS)
        if table.column_names != columns.names or (folder / TABLE).is_symlink():
            return _svg([])
        started, ended, tokens, warmup = (table[name].to_numpy(zero_copy_only=False) for name in columns.names)
    except (OSError, ValueError):
        return _svg([])
    measured = ~warmup.astype(bool)
    return _svg(heights(started[measured].astype(float), ended[measured].astype(float), tokens[measured].astype(float)))


def heights(started: np.ndarray, ended: np.ndarray, tokens: np.ndarray) -> list[float]:
    """Tokens in each of `BARS` equal parts of the time, as shares of the largest; those of a request evenly from start to end."""
    if not len(started) or not ended.max() > started.min():
        return []
    first, last = started.min(), ended.max()
    edges = np.linspace(first, last, BARS + 1)
    lengths = np.maximum(ended - started, 1.0)
    tokens = np.nan_to_num(tokens)
    rates = np.zeros(BARS)
    for place in range(BARS):
        inside = np.clip(np.minimum(ended, edges[place + 1]) - np.maximum(started, edges[place]), 0, None)
        rates[place] = float((tokens * inside / lengths).sum())
    return (rates / rates.max()).tolist() if rates.max() > 0 else []


def _svg(bars: list[float]) -> bytes:
    drawn = "".join(
        f'<rect x="{2 * place}" y="{HEIGHT - HEIGHT * bar:.1f}" width="1.6" height="{HEIGHT * bar:.1f}"/>'
        for place, bar in enumerate(bars)
    )
    size = f'width="{2 * BARS}" height="{HEIGHT}" viewBox="0 0 {2 * BARS} {HEIGHT}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} fill="#1f9d74">{drawn}</svg>'.encode()
