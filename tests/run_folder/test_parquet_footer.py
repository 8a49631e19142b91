"""What a Parquet file says of its columns: the same as pyarrow reads, and no footer ends the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from llama_load.run_folder.parquet_footer import ColumnChunk, column_chunks

TABLE = pa.table(
    {
        "text": ["a", "b" * 300, None] * 7,
        "list": [[1.5, 2.5], [], None] * 7,
        "number": list(range(21)),
        "flag": [True, None, False] * 7,
        "size": pa.array([1.0, 2.0, 3.0] * 7, pa.float32()),
    }
)
TYPES = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY")

# Each byte of the footer is changed in turn; a process that pyarrow ends prints nothing.
CHANGE_EACH_BYTE = """
import pathlib, sys
import pyarrow as pa
from llama_load.run_folder.foreign_tables import WHOLE_TABLE, read_table

file, changed = map(pathlib.Path, sys.argv[1:])
data = file.read_bytes()
footer = int.from_bytes(data[-8:-4], "little")
columns = pa.schema([("list", pa.list_(pa.float64())), ("number", pa.int64())])
for at in range(len(data) - 8 - footer, len(data) - 8):
    changed.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    try:
        read_table(changed, columns, WHOLE_TABLE)
    except (OSError, ValueError):
        pass
print("all were read or refused")
"""


def written(folder: Path, table: pa.Table = TABLE, **how: object) -> Path:
    file = folder / "table.parquet"
    pq.write_table(table, file, row_group_size=8, **how)
    return file


def footer_of(file: Path) -> bytes:
    data = file.read_bytes()
    return data[-8 - int.from_bytes(data[-8:-4], "little") : -8]


@pytest.mark.parametrize("how", [{}, {"compression": "zstd", "use_dictionary": False}])
def test_it_says_what_pyarrow_reads(tmp_path: Path, how: dict[str, object]) -> None:
    file = written(tmp_path, **how)
    metadata = pq.read_metadata(file)
    expected = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for column in map(group.column, range(group.num_columns)):
            expected.append(
                (
                    column.path_in_schema.partition(".")[0],
                    column.physical_type,
                    column.num_values,
                    column.total_uncompressed_size,
                    group.num_rows,
                )
            )
    found = [
        (
            chunk.name,
            TYPES[chunk.physical_type],
            chunk.values,
            chunk.uncompressed_bytes,
            chunk.rows,
        )
        for chunk in column_chunks(footer_of(file))
    ]
    assert found == expected


def test_no_footer_ends_the_process(tmp_path: Path) -> None:
    """pyarrow's description of a column does, where it contradicts itself."""
    file = written(tmp_path, TABLE.select(["list", "number"]).slice(0, 4))
    command = [sys.executable, "-c", CHANGE_EACH_BYTE, str(file)]
    done = subprocess.run(
        [*command, str(tmp_path / "changed.parquet")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "all were read or refused\n", done.stderr[-500:]


@pytest.mark.parametrize("length", [0, 1, 40])
def test_a_footer_that_is_cut_off_is_refused(tmp_path: Path, length: int) -> None:
    footer = footer_of(written(tmp_path))
    with pytest.raises(ValueError, match="its footer"):
        list(column_chunks(footer[:length]))


def test_a_footer_without_an_end_is_refused() -> None:
    """Structs in structs, a list longer than the file."""
    with pytest.raises(ValueError, match="levels deep"):
        list(column_chunks(b"\x1c" * 10_000))
    with pytest.raises(ValueError, match="cut off"):
        list(column_chunks(b"\x49\xfc\xff\xff\xff\xff\x07"))


def field(step: int, kind: int, value: bytes) -> bytes:
    """A field in Thrift's compact protocol: its number is `step` more than that of the one before."""
    return bytes([step << 4 | kind]) + value


@pytest.mark.parametrize("odd", [None, "type", "values", "uncompressed", "rows"])
def test_a_number_of_another_type_is_refused(odd: str | None) -> None:
    """One column of one row; one of its numbers is a text."""

    def number(step: int, name: str) -> bytes:
        return field(step, 8, b"\x01x") if name == odd else field(step, 6, b"\x02")

    path = field(2, 9, b"\x18\x01a")
    sizes = number(2, "values") + number(1, "uncompressed")
    about = number(1, "type") + path + sizes + b"\0"
    chunk = field(3, 12, about) + b"\0"
    group = field(1, 9, b"\x1c" + chunk) + number(2, "rows") + b"\0"
    footer = field(4, 9, b"\x1c" + group) + b"\0"
    if odd is None:
        assert list(column_chunks(footer)) == [ColumnChunk("a", 1, 1, 1, 1)]
        return
    with pytest.raises(ValueError, match="no such columns"):
        list(column_chunks(footer))
