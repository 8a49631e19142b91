"""Tables, journals and JSON of others: what is too large is refused before it fills the memory."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from llama_load.analysis.comparison.foreign_results import read_json
from llama_load.analysis.reports.run_list import run_row
from llama_load.analysis.results.earlier_runs import sent_before
from llama_load.cli import main as cli
from llama_load.ground.errors import RunError, UsageError
from llama_load.outside.foreign_files import MOST_JSON_BYTES, TooLarge, read_foreign
from llama_load.run_folder import MANIFEST, TABLE, RunWriter, load_run
from llama_load.run_folder.foreign_tables import (
    WHOLE_TABLE,
    TableLimits,
    open_table,
    read_table,
    record_columns,
)
from llama_load.run_folder.journal import Journal
from llama_load.run_folder.manifest import (
    JOURNAL,
    PACKED,
    last_with_label,
    write_manifest,
)
from llama_load.run_folder.observed.foreign_records import BadRecords, unpacked
from llama_load.run_folder.observed.record import RequestRecord, schema, to_batch
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.telemetry_file import TELEMETRY, load_telemetry
from tests.foreign_readers import telemetry_bytes
from tests.make_records import manifest, record

MIB = 1 << 20
SMALL = TableLimits(cells=100_000, decoded_bytes=4 * MIB)


def write(folder: Path, *records: RequestRecord) -> Path:
    """A finished run."""
    writer = RunWriter(folder, manifest())
    writer.append(records)
    writer.finish()
    writer.release()
    return folder


def sparse(file: Path, size: int = 40 << 30) -> Path:
    """40 GB that take no room on the disk."""
    with file.open("wb") as opened:
        opened.truncate(size)
    return file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "run", record(1))


def test_a_table_of_ours_comes_back_whole(tmp_path: Path) -> None:
    records = [
        record(index, itl_ms=[1.0, 2.0], error=None if index % 2 else "x")
        for index in range(3)
    ]
    table = pa.Table.from_batches([to_batch(records)])
    for group in (1, 100):
        pq.write_table(table, tmp_path / TABLE, row_group_size=group)
        assert read_table(tmp_path / TABLE, schema(), WHOLE_TABLE).equals(table)
    pq.write_table(table.slice(0, 0), tmp_path / TABLE)
    assert read_table(tmp_path / TABLE, schema(), WHOLE_TABLE).equals(table.slice(0, 0))
    pq.write_table(table.drop_columns(["status"]), tmp_path / TABLE)
    assert read_table(
        tmp_path / TABLE, record_columns("status", "host"), WHOLE_TABLE
    ).column_names == ["host"]


def test_millions_of_equal_rows_are_refused_by_the_footer(
    folder: Path, tmp_path: Path
) -> None:
    """A table of 9 MB with 20 million rows took 188 s and 5.5 GB beside a new run."""
    rows = WHOLE_TABLE.cells // len(schema()) + 1
    pq.write_table(pa.table({"warmup": np.zeros(rows, bool)}), folder / TABLE)
    assert (folder / TABLE).stat().st_size < MIB
    with pytest.raises(RunError, match=f"has {rows:,} rows x {len(schema())} columns"):
        load_run(folder)
    own = write(tmp_path / "own", record(1, prompt_sha256="a" * 64))
    assert sent_before(own, load_run(own).records).runs == []


def test_a_million_requests_with_200_gaps_are_within_the_limits() -> None:
    """Both lists full, all texts there: 40 (columns of numbers) x 8 bytes, 400 bytes of texts, 200
    x (4 + 8) bytes a request."""
    assert 1_000_000 * (len(schema()) + 2 * 200) <= WHOLE_TABLE.cells
    assert (
        1_000_000 * (len(schema()) * 8 + 400 + 200 * (4 + 8))
        <= WHOLE_TABLE.decoded_bytes
    )


def test_a_text_repeated_by_a_dictionary_is_counted_before_it_is_copied(
    tmp_path: Path,
) -> None:
    """3000 rows of one text of 1 MB: 20 kB of file, 3 GB in memory."""
    texts = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(3000, np.int32)), pa.array(["x" * MIB])
    )
    pq.write_table(pa.table({"error": texts}), tmp_path / TABLE, compression="zstd")
    assert (tmp_path / TABLE).stat().st_size < MIB
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(TooLarge, match="more than 4,096 MiB"):
        read_table(tmp_path / TABLE, schema(), WHOLE_TABLE)
    assert pa.default_memory_pool().max_memory() <= max(before, 300 * MIB)


def test_elements_of_lists_are_cells(tmp_path: Path) -> None:
    gaps = pa.array([np.zeros(100_001, np.float32)], pa.list_(pa.float32()))
    pq.write_table(pa.table({"itl_ms": gaps}), tmp_path / TABLE)
    with pytest.raises(TooLarge, match="100,000 more elements of lists"):
        read_table(tmp_path / TABLE, record_columns("itl_ms"), SMALL)
    with open_table(tmp_path / TABLE, record_columns("itl_ms"), WHOLE_TABLE) as table:
        assert table.rows == 1


def test_long_lists_are_decoded_a_few_at_once(tmp_path: Path) -> None:
    """400 answers of 50,000 gaps, 80 MB: usual answers come 2000 at once, of these 335."""
    gaps = pa.ListArray.from_arrays(
        pa.array(np.arange(0, 20_000_001, 50_000), pa.int32()),
        pa.array(np.zeros(20_000_000, np.float32)),
    )
    pq.write_table(pa.table({"itl_ms": gaps}), tmp_path / TABLE)
    with open_table(tmp_path / TABLE, record_columns("itl_ms"), WHOLE_TABLE) as table:
        sizes = [batch.num_rows for batch in table.batches]
    assert sizes == [335, 65]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[[1.0]]], pa.list_(pa.list_(pa.float32()))),
        pa.array([{"a": {"b": 1}}]),
        pa.array([None], pa.null()),
        pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
        pa.array([b"xx"], pa.binary(2)),
    ],
    ids=lambda column: str(column.type),
)
def test_a_column_of_another_kind_is_refused(folder: Path, column: pa.Array) -> None:
    pq.write_table(pa.table({"itl_ms": column}), folder / TABLE)
    with pytest.raises(RunError, match="itl_ms has another type"):
        load_run(folder)


@pytest.mark.parametrize(
    ("tail", "sentence"),
    [
        (struct.pack("<I4s", 2**31, b"PAR1"), "describes itself"),
        (b"\0" * 8, "is no Parquet file"),
        (b"", "is no Parquet file"),
    ],
)
def test_a_footer_without_end_is_not_read(
    folder: Path, tail: bytes, sentence: str
) -> None:
    sparse(folder / TABLE, 3 << 30 if tail else 0)
    with (folder / TABLE).open("ab") as file:
        file.write(tail)
    with pytest.raises(RunError, match=sentence):
        load_run(folder)


def test_large_files_are_refused_unread(folder: Path, tmp_path: Path) -> None:
    """A run.json or requests.arrows of 40 GB ended `runs` and `report` with a MemoryError."""
    (folder / TABLE).unlink()
    sparse(folder / JOURNAL)
    with pytest.raises(
        RunError, match=r"requests\.arrows has 40,960 MiB, over the limit of"
    ):
        load_run(folder)
    sparse(folder / JOURNAL, 8 * MIB)  # without a frame it would be read at once
    assert load_run(folder).records.table.num_rows == 0
    sparse(folder / TABLE)
    with pytest.raises(
        RunError, match=r"requests\.parquet has 40,960 MiB, over the limit of"
    ):
        load_run(folder)
    sparse(folder / MANIFEST)
    with pytest.raises(
        RunError, match=r"run\.json has 40,960 MiB, over the limit of 32 MiB"
    ):
        load_run(folder)
    assert run_row(folder)[0] == "run"
    assert last_with_label(tmp_path, "x") is None
    with pytest.raises(UsageError, match="over the limit of 256 MiB"):
        read_json(sparse(folder / "summary.json"))


def test_a_manifest_does_not_ask_for_thousands_of_figures(folder: Path) -> None:
    """90,000 percentiles were computed for minutes."""
    about = json.loads((folder / MANIFEST).read_text())
    about["percentiles"] = [place / 1000 for place in range(1, 90_000)]
    (folder / MANIFEST).write_text(json.dumps(about))
    with pytest.raises(RunError, match="length <= 100"):
        load_run(folder)


def test_the_name_of_a_folder_cannot_write_to_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path / "a\x1b[31mred\nVALID", record(1))
    assert cli.main(["report", str(folder)]) in (0, 3)
    assert "\x1b" not in "".join(capsys.readouterr())


def test_batches_that_were_packed_are_counted_unpacked(tmp_path: Path) -> None:
    """50 copies of a frame of 2 kB that unpacks to 4 MB."""
    journal = Journal(tmp_path / PACKED)
    journal.append(to_batch([record(1, prompt_text="x" * (4 * MIB))]), packed=True)
    journal.close()
    data = (tmp_path / PACKED).read_bytes()
    (tmp_path / PACKED).write_bytes(data * 50)
    assert len(data) < 64 << 10
    write_manifest(tmp_path, manifest())
    with pytest.raises(RunError, match="its batches have more than 32 MiB"):
        load_run(tmp_path, TableLimits(cells=10_000, decoded_bytes=32 * MIB))


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / MANIFEST)
    with pytest.raises(OSError, match="not a regular file"):
        read_foreign(tmp_path / MANIFEST, MOST_JSON_BYTES)


@pytest.mark.parametrize(
    "text", [b"[" * 100_000, b'{"a":' * 100_000, b'"' + b"x" * MIB, b"9" * MIB]
)
def test_nested_and_endless_json_is_a_sentence(folder: Path, text: bytes) -> None:
    (folder / MANIFEST).write_bytes(text)
    with pytest.raises(RunError, match="cannot be read"):
        load_run(folder)
    assert run_row(folder)[0] == "run"


def test_a_batch_with_rows_but_no_bytes_is_refused() -> None:
    """A column of type null has any number of rows in no bytes; each row would become 74 cells."""
    rows = 2**31 - 2
    for kind in (pa.null(), pa.run_end_encoded(pa.int32(), pa.null())):
        columns = pa.schema([pa.field("status", kind)])
        column = (
            pa.nulls(rows, kind)
            if kind == pa.null()
            else pa.RunEndEncodedArray.from_arrays(
                pa.array([rows - 1], pa.int32()), pa.nulls(1)
            )
        )
        batch = pa.RecordBatch.from_arrays([column], schema=columns)
        message = pa.ipc.read_message(batch.serialize())
        with pytest.raises(BadRecords):
            unpacked(message, columns)
    own = to_batch([record(1)])
    assert unpacked(pa.ipc.read_message(own.serialize()), schema()).equals(own)
    assert Records(pa.Table.from_batches([own])).table.num_rows == 1


@pytest.mark.parametrize("what", ["two columns of one name", "no UTF-8"])
def test_a_table_that_parquet_allows_and_we_cannot_use_is_a_sentence(
    folder: Path, what: str
) -> None:
    """It was a KeyError, or a UnicodeDecodeError where the text was used."""
    table = pq.read_table(folder / TABLE)
    if what == "no UTF-8":
        place = table.schema.get_field_index("error")
        offsets = np.array([0, *[2] * len(table)], np.int32)
        broken = pa.Array.from_buffers(
            pa.string(),
            len(table),
            [None, pa.py_buffer(offsets), pa.py_buffer(b"\xff\xfe")],
        )
        table = table.set_column(place, "error", broken)
    else:
        table = table.append_column("prompt_index", table.column("prompt_index"))
    pq.write_table(table, folder / TABLE)
    with pytest.raises(RunError, match="cannot be read"):
        load_run(folder)


def test_a_column_of_a_kind_that_arrow_has_not_is_a_sentence(tmp_path: Path) -> None:
    """The schema that Arrow adds to a table names an integer of more than 64 bits: a fuzzer's find,
    a traceback."""
    good = telemetry_bytes()
    file = tmp_path / TELEMETRY
    file.write_bytes(good.replace(b"AAASAAAAAEA", b"AAASAAIAAEA"))
    assert file.read_bytes() != good
    assert any("cannot be read" in note for note in load_telemetry(tmp_path).notes)
