"""Results of a run for others: requests as CSV, JSON lines or Parquet; the report as JSON, Markdown or text; a picture of it."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

from llama_load.errors import UsageError
from llama_load.foreign_text import redacted

if TYPE_CHECKING:
    from llama_load.observed.records import Records
    from llama_load.run_folder import Run

# The command line needs FORMATS for its help, so what is slow to import is imported in the functions.
CSV, JSONL, PARQUET = REQUESTS = ("csv", "jsonl", "parquet")
PNG, SVG = "png", "svg"
FORMATS = (*REQUESTS, "json", "md", "txt", SVG, PNG)
# A spreadsheet takes a cell that begins so as a formula; an apostrophe in front makes it text.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def export(folder: Path, form: str, file: Path | None, language: str | None = None) -> None:
    """Write a run in one of `FORMATS` to a file, or to stdout. The run folder is not changed, so it may be of a run in progress.
    `language`: of the headings (None: the run's).

    Raises UsageError and RunError (no run folder, or a damaged one), OSError (the file cannot be written).
    """
    from llama_load.run_folder import load_run
    from llama_load.run_folder.whole_file import whole_file

    run = load_run(folder)
    if file is not None:
        with whole_file(file) as out:
            _write(run, form, out, language)
    elif form in (PARQUET, PNG) and sys.stdout.isatty():
        raise UsageError(f"{form} is not text: give a file with --output, or send stdout to one")
    else:
        _write(run, form, sys.stdout.buffer, language)
        sys.stdout.buffer.flush()


def _write(run: Run, form: str, out: IO[bytes], language: str | None) -> None:
    if form in REQUESTS:
        write_requests(run.records, form, out)
        return
    from llama_load.analysis.results import analyze
    from llama_load.reports import picture
    from llama_load.reports.block import block
    from llama_load.reports.result_json import result_json
    from llama_load.reports.write import markdown

    results = analyze(run)
    if form == PNG:
        out.write(picture.as_png(results))
        return
    if form == SVG:
        text = picture.as_svg(results)
    elif form == "json":
        text = msgspec.json.format(msgspec.json.encode(result_json(results)), indent=1).decode() + "\n"
    else:
        text = block(results)
        text = markdown(results, text, language) if form == "md" else text
    out.write(redacted(text).encode())


def write_requests(records: Records, form: str, out: IO[bytes]) -> None:
    """A row per request with the columns of requests.parquet, warm-ups included. In CSV lists are separated by semicolons, what was
    not measured is empty, and text that a spreadsheet would take for a formula has an apostrophe in front."""
    if form == PARQUET:
        import pyarrow.parquet as pq

        pq.write_table(records.table, out, compression="zstd")
        return
    if form == CSV:
        text = io.TextIOWrapper(out, encoding="utf-8", newline="", write_through=True)
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(records.table.column_names)
        for row in _rows(records):
            writer.writerow([_cell(value) for value in row.values()])
        text.detach()
        return
    for row in _rows(records):
        out.write(redacted(msgspec.json.encode(row).decode()).encode() + b"\n")


def write_csv(records: Records, file: Path) -> None:
    """A row per request into this file, whole or not at all. Raises OSError."""
    from llama_load.run_folder.whole_file import whole_file

    with whole_file(file) as out:
        write_requests(records, CSV, out)


def _rows(records: Records) -> Iterator[dict[str, Any]]:
    for batch in records.batches():
        yield from batch.table.to_pylist()


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        text = redacted(value)
        return f"'{text}" if text.startswith(FORMULA) else text
    return ";".join(map(str, value)) if isinstance(value, list) else value
