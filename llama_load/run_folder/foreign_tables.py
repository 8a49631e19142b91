"""Reads Parquet files that others may have written: one that is too large is refused before it is
decoded.

Parquet stores equal values once: 9 MB can hold 20 million rows, and a dictionary with one long text
can be repeated without end. So the size that counts is that of the decoded columns. It is estimated
from the footer first, and counted while batches are read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llama_load.outside.budget import spend_bytes
from llama_load.outside.foreign_files import TooLarge, open_foreign
from llama_load.run_folder.observed.foreign_records import check_integers, is_flat
from llama_load.run_folder.observed.record import aligned, schema
from llama_load.run_folder.parquet_footer import ColumnChunk, column_chunks

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

MOST_FILE_BYTES = 8 << 30
# The footer of ten million of our requests has 10 MB; parsed, it takes about twenty times its size.
MOST_FOOTER_BYTES = 16 << 20
_MAGIC = b"PAR1"
_TAIL = struct.Struct("<I4s")
# Rows decoded at once, fewer where they have more bytes than usual; and the most bytes of them:
# texts of 500 kB a row.
BATCH_ROWS = 2000
USUAL_BATCH_BYTES = 64 << 20
MOST_BATCH_BYTES = 1 << 30
# Bytes of a value, by the number of its physical type: INT32, INT64, INT96, FLOAT, DOUBLE.
_WIDTHS = {1: 4, 2: 8, 3: 12, 4: 4, 5: 8}
_BYTE_ARRAY = 6
# That a value counts at least: a column without values takes time, too.
VALUE_BYTES = 8


@dataclass(frozen=True, slots=True)
class TableLimits:
    """What a table may have: rows x columns (each element of a list is a cell, too), and bytes of
    its decoded columns."""

    cells: int
    decoded_bytes: int


# A whole table of requests: a million answers with 200 gaps each have 270 million cells and 1.5 GB.
WHOLE_TABLE = TableLimits(cells=550_000_000, decoded_bytes=4 << 30)


@dataclass(frozen=True, slots=True)
class ForeignTable:
    """Those of the columns asked for that a file has; its number of rows; its schema's metadata;
    its batches, to be read once."""

    columns: pa.Schema
    rows: int
    metadata: dict[bytes, bytes]
    batches: Iterator[pa.RecordBatch]


def read_table(file: Path, columns: pa.Schema, limits: TableLimits) -> pa.Table:
    """Those of these columns that the file has. Raises OSError, TooLarge, ValueError (pyarrow's
    exceptions are such)."""
    import pyarrow as pa

    with open_table(file, columns, limits) as table:
        return pa.Table.from_batches(table.batches, table.columns)


@contextmanager
def open_table(
    file: Path, columns: pa.Schema, limits: TableLimits
) -> Iterator[ForeignTable]:
    """The same, to be read batch by batch."""
    import pyarrow as pa

    try:
        with _opened(file, columns) as (table, footer):
            present = _present(table, columns)
            size = _check_footer(
                file.name, table, footer, present.names, limits, width=len(columns)
            )
            rows = table.metadata.num_rows
            metadata = table.schema_arrow.metadata or {}
            batch_rows = _batch_rows(rows, size)
            batches = _batches(file.name, table, present, limits, batch_rows)
            yield ForeignTable(present, rows, metadata, batches)
    # Not all of pyarrow's exceptions are ValueErrors: "Integers with more than 64 bits".
    except pa.ArrowException as error:
        raise ValueError(f"{file.name} cannot be read: {error}") from None


def read_records(file: Path, limits: TableLimits) -> pa.Table:
    """The records of a table, with all columns of ours. Raises OSError, TooLarge, ValueError,
    IndexError, BadRecords."""
    import pyarrow as pa

    with open_table(file, schema(), limits) as opened:
        # Batch by batch, because columns without values then share their memory.
        parts = [aligned(pa.Table.from_batches([batch])) for batch in opened.batches]
    table = pa.concat_tables([schema().empty_table(), *parts])
    check_integers(table.columns)
    return table


def record_columns(*names: str) -> pa.Schema:
    """These columns of a table of requests."""
    import pyarrow as pa

    return pa.schema([schema().field(name) for name in names])


def _present(table: pq.ParquetFile, columns: pa.Schema) -> pa.Schema:
    import pyarrow as pa

    names = table.schema_arrow.names
    if len(set(names)) < len(names):
        raise ValueError("it has two columns of one name")
    return pa.schema([field for field in columns if field.name in names])


def _batch_rows(rows: int, size: int) -> int:
    """Rows to decode at once of a table of this many rows and bytes."""
    usual = USUAL_BATCH_BYTES * rows // max(1, size)
    return max(1, min(BATCH_ROWS, usual))


def _batches(
    name: str,
    table: pq.ParquetFile,
    present: pa.Schema,
    limits: TableLimits,
    batch_rows: int,
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    decoded = rows = 0
    for batch in table.iter_batches(batch_size=batch_rows, columns=present.names):
        rows += batch.num_rows
        size = sum(map(_decoded_bytes, batch.columns))
        decoded += size
        spend_bytes(decoded=max(size, VALUE_BYTES * batch.num_rows * batch.num_columns))
        if size > MOST_BATCH_BYTES or decoded > limits.decoded_bytes:
            raise TooLarge(_too_many_bytes(name, limits))
        arrays = [
            _plain_column(batch.column(field.name)).cast(field.type)
            for field in present
        ]
        checked = pa.RecordBatch.from_arrays(arrays, schema=present)
        checked.validate(full=True)  # else text that is no UTF-8 fails where it is used
        yield checked
    # a page whose header is damaged ends its column without an error
    if rows != table.metadata.num_rows:
        raise ValueError(f"{rows} of its {table.metadata.num_rows} rows can be read")


@contextmanager
def _opened(file: Path, columns: pa.Schema) -> Iterator[tuple[pq.ParquetFile, bytes]]:
    """The file, with texts as dictionaries: equal ones are not copied before they are counted; and
    its footer."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with open_foreign(file, MOST_FILE_BYTES, inside=file.parent) as opened:
        size = opened.seek(0, 2)
        opened.seek(max(0, size - _TAIL.size))
        tail = opened.read(_TAIL.size)
        if len(tail) < _TAIL.size or tail[4:] != _MAGIC:
            raise ValueError(f"{file.name} is no Parquet file")
        footer_bytes = _TAIL.unpack(tail)[0]
        if footer_bytes > MOST_FOOTER_BYTES:
            raise TooLarge(
                f"{file.name} describes itself in more than {MOST_FOOTER_BYTES >> 20} MiB"
            )
        opened.seek(max(0, size - _TAIL.size - footer_bytes))
        footer = opened.read(footer_bytes)
        opened.seek(0)
        about = pq.read_metadata(opened)
        # The leaf of a list has another name.
        stored = set()
        for field in about.schema.to_arrow_schema():
            if not pa.types.is_nested(field.type):
                stored.add(field.name)
        texts = []
        for field in columns:
            if pa.types.is_string(field.type) and field.name in stored:
                texts.append(field.name)

        opened.seek(0)
        with pq.ParquetFile(
            opened,
            metadata=about,
            read_dictionary=texts,
            page_checksum_verification=True,
        ) as table:
            yield table, footer


def _check_footer(
    name: str,
    table: pq.ParquetFile,
    footer: bytes,
    names: list[str],
    limits: TableLimits,
    *,
    width: int,
) -> int:
    """Refuse by what the file says of itself; else the bytes of its decoded columns."""
    for field in table.schema_arrow:
        if field.name in names and not is_flat(field.type):
            raise ValueError(f"{name}: its column {field.name} has another type")

    rows = table.metadata.num_rows
    elements = 0
    size = 0
    columns = set(names)
    for chunk in column_chunks(footer):
        if chunk.name in columns:
            elements += max(0, chunk.values - chunk.rows)
            size += _decoded_size(chunk)
    if rows * width + elements > limits.cells:
        raise TooLarge(
            f"{name} has {rows:,} rows x {width} columns and {elements:,} more elements of "
            "lists, over the limit of "
            f"{limits.cells:,} cells"
        )
    if size > limits.decoded_bytes:
        raise TooLarge(_too_many_bytes(name, limits))
    return size


def _too_many_bytes(name: str, limits: TableLimits) -> str:
    return f"{name} has columns of more than {limits.decoded_bytes >> 20:,} MiB"


def _decoded_size(chunk: ColumnChunk) -> int:
    """Bytes of a column of a row group, once it is decoded, by the file's own word."""
    size = chunk.values * _WIDTHS.get(chunk.physical_type, 0)
    if chunk.physical_type == _BYTE_ARRAY:
        size = max(size, chunk.uncompressed_bytes)
    return max(0, size)


def _decoded_bytes(column: Any) -> int:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    lengths = pc.take(
        pc.cast(pc.binary_length(column.dictionary), pa.int64()), column.indices
    )
    return int(pc.sum(lengths).as_py() or 0) + 4 * len(column)


def _plain_column(column: Any) -> Any:
    import pyarrow as pa

    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
