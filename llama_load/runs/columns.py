"""Some columns of a table of records, read only if they are not too large."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llama_load.record import schema

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


def read_columns(file: Path, names: Sequence[str], most_bytes: int) -> tuple[pa.Table | None, int]:
    """These columns of requests.parquet and their size in bytes; None if it is no such table, or larger than `most_bytes`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file) as table:
            if not set(names) <= set(table.schema_arrow.names):
                return None, 0
            size = sum(group_bytes(table, names))
            if size > most_bytes:
                return None, 0
            return table.read(list(names)).select(names).cast(pa.schema([schema().field(name) for name in names])), size
    except (OSError, pa.ArrowException, ValueError):
        return None, 0


def group_bytes(table: pq.ParquetFile, names: Sequence[str]) -> list[int]:
    """The size of these columns in each row group, uncompressed."""
    groups = (table.metadata.row_group(number) for number in range(table.metadata.num_row_groups))
    wanted = set(names)
    return [
        sum(
            chunk.total_uncompressed_size
            for chunk in map(group.column, range(group.num_columns))
            if chunk.path_in_schema.partition(".")[0] in wanted
        )
        for group in groups
    ]
