"""Data files that are packed (gzip, zstd) or tables (CSV, Parquet): as JSON Lines, in a temporary
file whose size is bounded."""

from __future__ import annotations

import csv
import gzip
import io
import mmap
import re
import tempfile
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from llama_load.ground.errors import UsageError
from llama_load.loadgen.workloads.text_files import decoded
from llama_load.outside.foreign_files import TooLarge
from llama_load.outside.foreign_text import printable

Buffer = mmap.mmap | bytes

# Unpacked, or as JSON Lines: it is written to disk once, at 300 MB/s or more.
MOST_UNPACKED_BYTES = 2 << 30
# Of a CSV file, which is decoded in memory.
MOST_CSV_BYTES = 1 << 30
# A prompt of four million tokens; Python's own limit is 128 KiB.
MOST_CELL_CHARS = 16 << 20
MOST_ROWS = 5_000_000
# Rows of a Parquet file are decoded so many at a time, and may take so much memory.
ROWS_AT_A_TIME = 64
MOST_BATCH_BYTES = 1 << 30
_PIECE_BYTES = 1 << 20

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_PARQUET = b"PAR1"
_OTHER_FORMS = {
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"PK\x03\x04": "zip",
    b"\x04\x22\x4d\x18": "lz4",
    b"ARROW1": "Arrow",
}
_DELIMITERS = (",", "\t", ";")
# Two names of columns or more, of a few words each.
_NAME = r"\"?[\w:()/.-]{0,40}(?: [\w:()/.-]{1,40}){0,3}\"?"
_HEADER = re.compile(rf" ?{_NAME}(?: ?[,;\t] ?{_NAME})+ ?")
_BEGIN_BYTES = 1 << 16
_BEGINS_OF_JSON = (b"{", b"[")


@dataclass(frozen=True, slots=True)
class JsonLines:
    """A table as lines, each of which is `what` of a number: line 7 of a CSV file, row 7 of a
    Parquet file."""

    data: Buffer
    numbers: array[int]
    what: str


def unpacked(data: Buffer) -> Buffer:
    """The data without its packing. TooLarge: it has too many bytes; UsageError: it is broken, or
    packed in another form."""
    for mark, form in _OTHER_FORMS.items():
        if data[: len(mark)] == mark:
            raise UsageError(
                f"it is a {form} file: unpack it, or save it as JSON Lines"
            )
    if data[:2] == _GZIP:
        return _unpacked_whole(gzip.GzipFile(fileobj=io.BytesIO(data)), "gzip")
    if data[:4] == _ZSTD:
        import pyarrow as pa

        packed = pa.BufferReader(pa.py_buffer(data))
        return _unpacked_whole(pa.CompressedInputStream(packed, "zstd"), "zstd")
    return data


def _unpacked_whole(stream: Any, form: str) -> Buffer:
    import pyarrow as pa

    size = 0
    with tempfile.TemporaryFile() as file:
        try:
            while piece := stream.read(_PIECE_BYTES):
                size += len(piece)
                _check_size(size)
                file.write(piece)
        except (
            EOFError,
            zlib.error,
            gzip.BadGzipFile,
            pa.ArrowException,
            OSError,
        ) as error:
            raise UsageError(
                f"its {form} is broken ({printable(str(error), 120)}): fetch it again"
            ) from None
        return _mapped(file, size)


def _mapped(file: Any, size: int) -> Buffer:
    file.flush()
    if not size:
        return b""
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _check_size(size: int) -> None:
    if size > MOST_UNPACKED_BYTES:
        raise TooLarge(
            f"unpacked it has more than {MOST_UNPACKED_BYTES >> 30} GiB; save a part of it"
        )


def json_lines(data: Buffer, path: Path) -> JsonLines | None:
    """A CSV or Parquet file as lines; None if it is neither. UsageError: it is broken."""
    if data[:4] == _PARQUET:
        return _written_lines(_parquet_rows(data), "row")
    if path.suffix.lower() == ".parquet":
        raise UsageError("it is no Parquet file, which begin with PAR1")
    text = _csv_text(data, path)
    if text is None:
        return None
    return _written_lines(_csv_rows(text), "line")


def lines_of_rows(rows: Iterable[Mapping[str, Any]]) -> JsonLines:
    """Rows of a data set. TooLarge: they have too many bytes."""
    return _written_lines(enumerate(rows, start=1), "row")


def _written_lines(
    rows: Iterator[tuple[int, Mapping[str, Any]]], what: str
) -> JsonLines:
    encode = msgspec.json.Encoder(enc_hook=str).encode
    numbers = array("Q")
    size = 0
    with tempfile.TemporaryFile() as file:
        for number, row in rows:
            line = encode(row) + b"\n"
            size += len(line)
            _check_size(size)
            if len(numbers) >= MOST_ROWS:
                raise TooLarge(
                    f"it has more than {MOST_ROWS:,} rows; save a part of it"
                )
            file.write(line)
            numbers.append(number)
        return JsonLines(_mapped(file, size), numbers, what)


def _parquet_rows(data: Buffer) -> Iterator[tuple[int, Mapping[str, Any]]]:
    import pyarrow as pa
    from pyarrow import parquet

    number = 0
    try:
        file = parquet.ParquetFile(pa.BufferReader(pa.py_buffer(data)))
        groups = range(file.metadata.num_row_groups)
        _check_size(sum(file.metadata.row_group(at).total_byte_size for at in groups))
        for batch in file.iter_batches(ROWS_AT_A_TIME, use_threads=False):
            if batch.nbytes > MOST_BATCH_BYTES:
                raise TooLarge(
                    f"row {number + 1} and the next ones take too much memory"
                )
            for row in batch.to_pylist():
                number += 1
                yield number, row
    except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
        reason = printable(str(error).partition("\n")[0], 120)
        raise UsageError(f"it is a broken Parquet file ({reason})") from None


def _csv_text(data: Buffer, path: Path) -> str | None:
    """The text of a CSV file, by its name or its header; None for others."""
    name = path.name.lower().removesuffix(".gz").removesuffix(".zst")
    is_named = name.endswith((".csv", ".tsv"))
    if data[:_BEGIN_BYTES].lstrip()[:1] in _BEGINS_OF_JSON:
        return None
    begin = decoded(data[:_BEGIN_BYTES])
    if begin is None or not begin.strip():
        return None
    if not is_named and not _HEADER.fullmatch(begin.strip().partition("\n")[0].strip()):
        return None
    if len(data) > MOST_CSV_BYTES:
        raise TooLarge(
            f"CSV is read up to {MOST_CSV_BYTES >> 30} GiB; save a part of it"
        )
    return decoded(data[:])


def _csv_rows(text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The rows by their header. UsageError names a line with another number of cells."""
    csv.field_size_limit(MOST_CELL_CHARS)
    text = text.lstrip("\r\n")
    begin = text.partition("\n")[0]
    delimiter = max(_DELIMITERS, key=begin.count)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    header: list[str] | None = None
    try:
        for cells in rows:
            if not cells:
                continue
            if header is None:
                header = [name.strip() for name in cells]
                twice = [name for name in header if header.count(name) > 1]
                if twice:
                    raise UsageError(
                        f"it has two columns {printable(twice[0], 60)!r}: rename one"
                    )
                continue
            if len(cells) != len(header):
                raise UsageError(
                    f"line {rows.line_num} has {len(cells)} cells, its header {len(header)}"
                )
            yield rows.line_num, dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise UsageError(f"line {rows.line_num} is not CSV: {error}") from None
