"""Results of a run for others.

Requests as CSV, JSON lines or Parquet; the report as JSON, Markdown or text; a picture of it; and
the formats of other programs, of which `analysis/reports/exports/` has a module each.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

from llama_load.analysis.reports.exports import EXPORTS, Export
from llama_load.ground.errors import UsageError
from llama_load.outside.foreign_text import escaped_json, printable, redacted

if TYPE_CHECKING:
    from llama_load.analysis.results.results import Results
    from llama_load.run_folder import Run
    from llama_load.run_folder.observed.records import Records

# The command line needs FORMATS for its help, so what is slow to import is imported in the
# functions.
CSV = "csv"
JSONL = "jsonl"
PARQUET = "parquet"
REQUESTS = (CSV, JSONL, PARQUET)
PNG = "png"
SVG = "svg"
EXPORT_OF = {export.name: export for export in EXPORTS}
FORMATS = (*REQUESTS, "json", "md", "txt", SVG, PNG, *EXPORT_OF)
# A spreadsheet takes a cell that begins so as a formula; an apostrophe in front makes it text.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def export(
    folder: Path, form: str, file: Path | None, language: str | None = None
) -> None:
    """Write a run in one of `FORMATS` to a file, or to stdout.

    The run folder is not changed, so it may be of a run in progress. `language`: of the headings
    (None: the run's).

    Raises UsageError and RunError (no run folder, or a damaged one), OSError (the file cannot be
    written).
    """
    from llama_load.run_folder.whole_file import whole_file

    if file is None and form in (PARQUET, PNG) and sys.stdout.isatty():
        raise UsageError(
            f"{form} is not text: give a file with --output, or send stdout to one"
        )

    write = _writer(folder, form, language)
    if file is not None:
        with whole_file(file) as out:
            write(out)
    else:
        write(sys.stdout.buffer)
        sys.stdout.buffer.flush()


def _writer(
    folder: Path, form: str, language: str | None
) -> Callable[[IO[bytes]], None]:
    """What writes it. What cannot be read is an error here, before a file is opened."""
    other = EXPORT_OF.get(form)
    if other is not None and other.takes == "folder":
        made = other.maker()(folder)
        return lambda out: _put(made, out)

    from llama_load.run_folder import load_run

    run = load_run(folder)
    if form in REQUESTS:
        return lambda out: write_requests(run.records, form, out)
    if other is not None:
        return lambda out: _put(_exported(run, other), out)
    return lambda out: _put(_report(run, form, language), out)


def _exported(run: Run, export: Export) -> object:
    from llama_load.analysis.results.results import analyze

    make = export.maker()
    if export.takes == "records":
        return make(run.records)
    return make(analyze(run))


def _report(run: Run, form: str, language: str | None) -> object:
    """The report: a JSON value, text, or the bytes of a picture."""
    from llama_load.analysis.reports.block import block
    from llama_load.analysis.reports.picture import as_png, as_svg
    from llama_load.analysis.reports.result_json import result_json
    from llama_load.analysis.reports.write import markdown
    from llama_load.analysis.results.results import analyze

    makers: dict[str, Callable[[Results], object]] = {
        "json": result_json,
        "md": lambda results: markdown(results, block(results), language),
        "txt": block,
        SVG: as_svg,
        PNG: as_png,
    }

    return makers[form](analyze(run))


def _put(value: object, out: IO[bytes]) -> None:
    if isinstance(value, bytes):
        out.write(value)
    elif isinstance(value, str):
        out.write(redacted(value).encode())
    elif isinstance(value, Iterator):
        for item in value:
            line = escaped_json(msgspec.json.encode(item).decode())
            out.write(redacted(line).encode() + b"\n")
    else:
        text = msgspec.json.format(msgspec.json.encode(value), indent=1).decode()
        out.write(redacted(f"{escaped_json(text)}\n").encode())


def write_requests(records: Records, form: str, out: IO[bytes]) -> None:
    """A row per request with the columns of requests.parquet, warm-ups included.

    In CSV lists are separated by semicolons, what was not measured is empty, and text that a
    spreadsheet would take for a formula has an apostrophe in front.
    """
    if form == PARQUET:
        import pyarrow.parquet as pq

        pq.write_table(records.table, out, compression="zstd")
    elif form == CSV:
        _write_csv_rows(records, out)
    else:
        _put(_plain_rows(records), out)


def _write_csv_rows(records: Records, out: IO[bytes]) -> None:
    is_seen = (
        out.isatty()
    )  # foreign texts could move the cursor of a terminal, or type into it
    text = io.TextIOWrapper(out, encoding="utf-8", newline="", write_through=True)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(records.table.column_names)
    for row in _plain_rows(records):
        writer.writerow([_csv_cell(value, is_seen=is_seen) for value in row.values()])

    text.detach()


def _plain_rows(records: Records) -> Iterator[dict[str, Any]]:
    for batch in records.batches():
        yield from batch.table.to_pylist()


def _csv_cell(value: Any, *, is_seen: bool) -> Any:
    if isinstance(value, list):
        return ";".join(map(str, value))
    if not isinstance(value, str):
        return value

    text = printable(value, None) if is_seen else redacted(value)
    if text.startswith(FORMULA):
        return f"'{text}"

    return text


def write_csv(records: Records, file: Path) -> None:
    """A row per request into this file, whole or not at all. Raises OSError."""
    from llama_load.run_folder.whole_file import whole_file

    with whole_file(file) as out:
        write_requests(records, CSV, out)
