"""Results of a run for others: requests as CSV, JSON lines or Parquet; the report as JSON, Markdown or text; a picture of it; and
the formats of other programs, of which `reports/exports/` has a module each."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

from llama_load.errors import UsageError
from llama_load.foreign_text import printable, redacted

if TYPE_CHECKING:
    from llama_load.analysis.results import Results
    from llama_load.observed.records import Records
    from llama_load.run_folder import Run

# The command line needs FORMATS for its help, so what is slow to import is imported in the functions.
CSV, JSONL, PARQUET = REQUESTS = ("csv", "jsonl", "parquet")
PNG, SVG = "png", "svg"
AIPERF, AIPERF_REQUESTS, LLM_D = "aiperf", "aiperf-requests", "llm-d"
SMALLER, BIGGER = "github-smaller", "github-bigger"
OTLP_TRACES, OTLP_METRICS = "otlp-traces", "otlp-metrics"
MLPERF = "mlperf"  # of a folder of runs
OTHERS = (LLM_D, AIPERF, AIPERF_REQUESTS, SMALLER, BIGGER, OTLP_TRACES, OTLP_METRICS, MLPERF)
FORMATS = (*REQUESTS, "json", "md", "txt", SVG, PNG, *OTHERS)
# A spreadsheet takes a cell that begins so as a formula; an apostrophe in front makes it text.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def export(folder: Path, form: str, file: Path | None, language: str | None = None) -> None:
    """Write a run in one of `FORMATS` to a file, or to stdout. The run folder is not changed, so it may be of a run in progress.
    `language`: of the headings (None: the run's).

    Raises UsageError and RunError (no run folder, or a damaged one), OSError (the file cannot be written).
    """
    from llama_load.run_folder.whole_file import whole_file

    if file is None and form in (PARQUET, PNG) and sys.stdout.isatty():
        raise UsageError(f"{form} is not text: give a file with --output, or send stdout to one")
    write = _writer(folder, form, language)
    if file is not None:
        with whole_file(file) as out:
            write(out)
    else:
        write(sys.stdout.buffer)
        sys.stdout.buffer.flush()


def _writer(folder: Path, form: str, language: str | None) -> Callable[[IO[bytes]], None]:
    """What writes it. What cannot be read is an error here, before a file is opened."""
    if form == MLPERF:
        from llama_load.reports.exports.mlperf_regions import regions_json

        points = regions_json(folder)
        return lambda out: _put(points, out)
    from llama_load.run_folder import load_run

    run = load_run(folder)
    if form in REQUESTS:
        return lambda out: write_requests(run.records, form, out)
    return lambda out: _put(_made(run, form, language), out)


def _made(run: Run, form: str, language: str | None) -> object:
    """The format of a run: bytes, text, a JSON value, or an iterator of JSON values, each for a line."""
    from llama_load.analysis.results import analyze
    from llama_load.reports.block import block
    from llama_load.reports.exports import aiperf_export, github_benchmark, llm_d, otlp
    from llama_load.reports.picture import as_png, as_svg
    from llama_load.reports.result_json import result_json
    from llama_load.reports.write import markdown

    if form == AIPERF_REQUESTS:
        return aiperf_export.request_lines(run.records)
    makers: dict[str, Callable[[Results], object]] = {
        "json": result_json,
        "md": lambda results: markdown(results, block(results), language),
        "txt": block,
        SVG: as_svg,
        PNG: as_png,
        LLM_D: llm_d.benchmark_report,
        AIPERF: aiperf_export.run_export,
        SMALLER: github_benchmark.smaller_is_better,
        BIGGER: github_benchmark.bigger_is_better,
        OTLP_TRACES: otlp.traces,
        OTLP_METRICS: lambda results: iter([otlp.metrics(results)]),
    }
    return makers[form](analyze(run))


def _put(value: object, out: IO[bytes]) -> None:
    if isinstance(value, bytes):
        out.write(value)
    elif isinstance(value, Iterator):
        for line in value:
            out.write(redacted(msgspec.json.encode(line).decode()).encode() + b"\n")
    else:
        text = value if isinstance(value, str) else msgspec.json.format(msgspec.json.encode(value), indent=1).decode() + "\n"
        out.write(redacted(text).encode())


def write_requests(records: Records, form: str, out: IO[bytes]) -> None:
    """A row per request with the columns of requests.parquet, warm-ups included. In CSV lists are separated by semicolons, what was
    not measured is empty, and text that a spreadsheet would take for a formula has an apostrophe in front."""
    if form == PARQUET:
        import pyarrow.parquet as pq

        pq.write_table(records.table, out, compression="zstd")
        return
    if form == CSV:
        is_seen = out.isatty()  # foreign texts could move the cursor of a terminal, or type into it
        text = io.TextIOWrapper(out, encoding="utf-8", newline="", write_through=True)
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(records.table.column_names)
        for row in _rows(records):
            writer.writerow([_cell(value, is_seen=is_seen) for value in row.values()])
        text.detach()
        return
    _put(_rows(records), out)


def write_csv(records: Records, file: Path) -> None:
    """A row per request into this file, whole or not at all. Raises OSError."""
    from llama_load.run_folder.whole_file import whole_file

    with whole_file(file) as out:
        write_requests(records, CSV, out)


def _rows(records: Records) -> Iterator[dict[str, Any]]:
    for batch in records.batches():
        yield from batch.table.to_pylist()


def _cell(value: Any, *, is_seen: bool) -> Any:
    if isinstance(value, str):
        text = printable(value, None) if is_seen else redacted(value)
        return f"'{text}" if text.startswith(FORMULA) else text
    return ";".join(map(str, value)) if isinstance(value, list) else value
