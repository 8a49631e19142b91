"""The journal of a run that is long: earlier records are packed while it goes on, and none is lost
or doubled by that."""

from __future__ import annotations

import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from llama_load.analysis.reports import again
from llama_load.outside import terminal
from llama_load.run_folder import TABLE, RunWriter, load_run
from llama_load.run_folder import run_journal as module
from llama_load.run_folder.journal import (
    MARKER,
    MOST_FRAME_BYTES,
    PACKED_MARKER,
    Journal,
    parse,
)
from llama_load.run_folder.manifest import JOURNAL, PACKED
from llama_load.run_folder.observed.record import INSTANTS, to_batch
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.run_journal import RunJournal, read_run_journal
from tests.make_records import manifest, record

ROWS = 40


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PACK_ROWS", ROWS)


def batch(first: int, rows: int = 4) -> pa.RecordBatch:
    return to_batch([record(index) for index in range(first, first + rows)])


def ids(table: pa.Table) -> list[str]:
    return [str(value) for value in table["request_id"].to_pylist()]


def names(count: int) -> list[str]:
    return [f"r{index}" for index in range(count)]


def filled(folder: Path, records: int) -> RunJournal:
    journal = RunJournal(folder)
    for first in range(0, records, 4):
        journal.append(batch(first))
    return journal


def test_what_packing_has_used_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each time that records are packed, and no more often."""
    given_back = []
    monkeypatch.setattr(module, "release_unused", lambda: given_back.append(True))
    journal = RunJournal(tmp_path)
    for number in range(2 * ROWS // 4):
        journal.append(batch(4 * number))
    journal.close()
    assert len(given_back) == 2


def test_a_long_run_in_batches_of_four_takes_little_disk_and_few_batches(
    tmp_path: Path,
) -> None:
    """100 records in fours: 80 are packed, in order, in a tenth of the bytes; what is read comes in
    few pieces."""
    journal = filled(tmp_path, 100)
    assert (
        ids(journal.read().table())
        == ids(read_run_journal(tmp_path).table())
        == names(100)
    )
    packed, recent = (
        (tmp_path / PACKED).stat().st_size / 80,
        (tmp_path / JOURNAL).stat().st_size / 20,
    )
    assert packed < recent / 10
    assert journal.read().table()["itl_ms"].num_chunks <= 4
    journal.close()


def test_a_kill_between_packing_and_emptying_doubles_no_record(tmp_path: Path) -> None:
    """Both files then hold the same records, and after the next packing still."""
    journal = filled(tmp_path, 36)
    before = (tmp_path / JOURNAL).read_bytes()
    journal.append(batch(36))
    journal.close()
    both = (tmp_path / JOURNAL).read_bytes()
    assert len(both) < len(before)
    (tmp_path / JOURNAL).write_bytes(before)
    assert ids(read_run_journal(tmp_path).table()) == names(40)


def test_a_report_that_reads_while_records_are_packed_misses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are moved between the reading of one file and of the other."""
    journal = filled(tmp_path, 36)
    real = module.read_journal

    def slow(path: Path, *limits: object) -> object:
        found = real(path, *limits)
        if not (tmp_path / PACKED).exists():
            journal.append(batch(36))
        return found

    monkeypatch.setattr(module, "read_journal", slow)
    assert ids(read_run_journal(tmp_path).table()) == names(40)
    journal.close()


def test_a_disk_that_refuses_to_pack_loses_nothing(tmp_path: Path) -> None:
    """Records stay as they came; as soon as there is room they are packed, each once."""
    (tmp_path / PACKED).mkdir()
    journal = filled(tmp_path, 60)
    (tmp_path / PACKED).rmdir()
    assert ids(read_run_journal(tmp_path).table()) == names(60)
    for first in range(60, 120, 4):
        journal.append(batch(first))
    assert (tmp_path / PACKED).stat().st_size
    assert ids(journal.read().table()) == names(120)
    journal.close()


def test_both_files_are_read_by_their_writer_after_their_removal(
    tmp_path: Path,
) -> None:
    journal = filled(tmp_path, 60)
    for name in (JOURNAL, PACKED):
        (tmp_path / name).unlink()
    journal.append(batch(60))
    assert ids(journal.read().table()) == names(64)
    journal.close()


def test_damage_to_packed_records_is_named_and_both_files_stay(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    writer = RunWriter(folder, manifest(end="complete", num_prompts=100))
    for first in range(0, 100, 4):
        writer.append_batch(batch(first))
    data = bytearray((folder / PACKED).read_bytes())
    data[data.rfind(PACKED_MARKER) + 100] ^= 1
    (folder / PACKED).write_bytes(data)
    writer.finish()
    writer.release()
    run = load_run(folder)
    assert run.records.strings("request_id") == [*names(40), *names(100)[80:]]
    assert [
        (each.file, each.places, each.records) for each in run.manifest.damaged
    ] == [(PACKED, 1, 40)]
    assert {JOURNAL, PACKED, TABLE} <= {file.name for file in folder.iterdir()}


def test_a_finished_run_keeps_neither_file(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    writer = RunWriter(folder, manifest(end="complete", num_prompts=100))
    for first in range(0, 100, 4):
        writer.append_batch(batch(first))
    assert writer.finish().records.strings("request_id") == names(100)
    writer.release()
    assert sorted(file.name for file in folder.iterdir()) == [TABLE, "run.json"]


@pytest.mark.parametrize("claimed", [MOST_FRAME_BYTES + 1, 2**32 - 1, 0, 10])
def test_a_packed_batch_of_another_length_than_it_claims_is_damage(
    tmp_path: Path, claimed: int
) -> None:
    """Its checksum is right: a file made to expand to more than memory holds."""
    from llama_load.run_folder.journal import _frame

    journal = Journal(tmp_path / "j")
    journal.append(batch(0), packed=True)
    data = (tmp_path / "j").read_bytes()
    at = data.rfind(PACKED_MARKER)
    made = data[:at] + _frame(
        struct.pack("<I", claimed) + data[at + 24 :], PACKED_MARKER
    )
    assert parse(made).table.num_rows == 0
    assert parse(made).gaps == [(at, len(data))]
    assert parse(data).table.num_rows == 4
    assert data.startswith(MARKER)
    journal.close()


def test_a_choice_of_rows_holds_no_copy_of_the_gaps() -> None:
    """Without the warm-up, the successful ones, those of a stage: nothing is copied until it is
    read."""
    rows = [
        record(index, gaps_ms=(20.0,) * 2000, warmup=index == 0) for index in range(50)
    ]
    records = Records(pa.Table.from_batches([to_batch(rows)]))
    before = pa.total_allocated_bytes()
    chosen = (
        records.measured().where(records.measured().numbers("prompt_index") > 10).ok()
    )
    assert len(chosen) == 39
    assert sum(map(len, chosen.gap_pieces())) == 39 * 2000
    assert pa.total_allocated_bytes() - before < 10_000
    assert chosen.strings("request_id") == [f"r{index}" for index in range(11, 50)]


def test_the_report_of_a_killed_run_reads_its_records_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were read four times: before the lock, under it, and after each file that was
    written."""
    from llama_load.run_folder import reading

    writer = RunWriter(tmp_path / "run", manifest(end="running", num_prompts=8))
    writer.append_batch(batch(0, 8))
    writer.release()
    reads: list[Path] = []
    real = reading.read_run_journal
    monkeypatch.setattr(
        reading,
        "read_run_journal",
        lambda folder, *limits: reads.append(folder) or real(folder, *limits),
    )
    monkeypatch.setattr(
        reading,
        "read_records",
        lambda *_: pytest.fail("the table that was just written is read again"),
    )
    monkeypatch.setattr(again, "write_html", lambda *_: None)
    assert again.report_again(tmp_path / "run") == 0
    assert len(reads) == 1


def test_the_table_does_not_look_for_equal_gaps(tmp_path: Path) -> None:
    """Floats that never repeat have no dictionary, which took half the time of writing; texts that
    repeat have one."""
    writer = RunWriter(tmp_path / "run", manifest())
    writer.append_batch(batch(0, 8))
    writer.finish()
    group = pq.ParquetFile(tmp_path / "run" / TABLE).metadata.row_group(0)
    encodings = {
        group.column(place).path_in_schema: group.column(place).encodings
        for place in range(group.num_columns)
    }
    assert "BYTE_STREAM_SPLIT" in encodings["itl_ms.list.element"]
    assert [
        name
        for name, used in encodings.items()
        if "RLE_DICTIONARY" in used and name in INSTANTS | {"itl_ms.list.element"}
    ] == []
    assert "RLE_DICTIONARY" in encodings["host"]


def test_a_batch_of_a_long_table_has_only_the_columns_that_are_read() -> None:
    """All 60 columns of 200 pieces took 0.2 ms a batch, and a report has 20,000 of them."""
    records = Records(pa.Table.from_batches([batch(0, 8)]))
    assert [
        found.table.column_names
        for found in records.where(records.numbers("prompt_index") > 3).batches(
            "itl_ms"
        )
    ] == [["itl_ms"]]
    assert next(records.batches()).table.column_names == records.table.column_names


def test_a_long_report_shows_what_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A million requests take half a minute."""
    writer = RunWriter(tmp_path / "run", manifest(num_prompts=8))
    writer.append_batch(batch(0, 8))
    writer.finish()
    writer.release()
    monkeypatch.setattr(again, "write_html", lambda *_: None)
    for many in (9, 8):
        monkeypatch.setattr(terminal, "MANY", many)
        again.report_again(tmp_path / "run")
        found = capsys.readouterr().err
        assert (
            ("8 requests: computing the figures" in found)
            == ("8 requests: writing report.html" in found)
            == (many == 8)
        )
