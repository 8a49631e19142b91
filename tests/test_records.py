"""Records as columns, and the run folder that keeps them."""

from __future__ import annotations

import json
import os
import resource
import stat
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_load.analysis.reports.block import block
from llama_load.analysis.results.results import analyze
from llama_load.ground.errors import RunError, UsageError
from llama_load.loadgen.users.measure import _without_prompt
from llama_load.run_folder import TABLE, Run, RunWriter, load_run
from llama_load.run_folder.manifest import JOURNAL
from llama_load.run_folder.observed.record import (
    RequestRecord,
    aligned,
    schema,
    to_batch,
)
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.reading import recover
from llama_load.run_folder.writer import open_run
from tests.make_records import from_batch, manifest, record, table


@given(
    st.lists(
        st.builds(
            record,
            st.integers(0, 1000),
            gaps_ms=st.lists(st.floats(0, 1e6, width=32), max_size=5).map(tuple),
            error=st.none()
            | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
            cached_tokens=st.none() | st.integers(0, 2**40),
            event_tokens=st.lists(st.integers(0, 2**53), max_size=5),
            warmup=st.booleans(),
        ),
        max_size=4,
    )
)
def test_records_survive_the_trip_through_columns(records: list[RequestRecord]) -> None:
    assert [
        replace(r, itl_ms=list(r.itl_ms)) for r in from_batch(to_batch(records))
    ] == records


def test_every_field_is_a_column() -> None:
    assert schema().names == [field.name for field in fields(RequestRecord)]


def test_a_finished_run_reads_back_as_it_was_written(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run", manifest(label="你好"))
    writer.append([record(0), record(1)])
    writer.append([record(2)])
    writer.finish()
    run = load_run(tmp_path / "run")
    assert not run.recovered
    assert run.manifest.label == "你好"
    assert run.records.strings("request_id") == ["r0", "r1", "r2"]
    assert not (tmp_path / "run" / JOURNAL).exists()


@pytest.mark.parametrize("torn", [1, 100, 1500])
def test_a_killed_run_keeps_all_whole_batches(tmp_path: Path, torn: int) -> None:
    """The last batch is cut off somewhere, as kill -9 or a full disk leaves it."""
    writer = RunWriter(tmp_path / "run", manifest(end="running"))
    writer.append([record(0), record(1)])
    whole = (tmp_path / "run" / JOURNAL).stat().st_size
    writer.append([record(2)])
    journal = tmp_path / "run" / JOURNAL
    journal.write_bytes(journal.read_bytes()[: whole + torn])
    run = load_run(tmp_path / "run")
    assert run.recovered
    assert run.records.strings("request_id") == ["r0", "r1"]
    recover(run)
    again = load_run(tmp_path / "run")
    assert (again.recovered, again.manifest.end, len(again.records)) == (
        False,
        "interrupted",
        2,
    )


def test_a_full_disk_loses_only_what_did_not_fit(tmp_path: Path) -> None:
    """A limit on the file's size stands in for the disk. Once there is room again, the run goes
    on."""
    writer = RunWriter(tmp_path / "run", manifest())
    writer.append([record(0)])
    size = (tmp_path / "run" / JOURNAL).stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 500, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            writer.append([record(1)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    writer.append([record(2)])
    writer.finish()
    assert load_run(tmp_path / "run").records.strings("request_id") == ["r0", "r2"]


def test_a_run_without_any_record_reads_back_empty(tmp_path: Path) -> None:
    RunWriter(tmp_path / "run", manifest()).finish()
    assert len(load_run(tmp_path / "run").records) == 0


def test_a_folder_that_holds_a_run_is_not_overwritten(tmp_path: Path) -> None:
    done = RunWriter(tmp_path / "run", manifest())
    done.finish()
    with pytest.raises(UsageError, match="another run is being written"):
        RunWriter(tmp_path / "run", manifest())
    done.release()
    with pytest.raises(UsageError, match="already holds a run"):
        RunWriter(tmp_path / "run", manifest())
    # while both are under way
    second, third = (open_run(tmp_path / "run", manifest()) for _ in range(2))
    assert (second.path, third.path) == (tmp_path / "run-2", tmp_path / "run-3")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").touch()
    with pytest.raises(UsageError, match="already holds other files"):
        RunWriter(tmp_path / "docs", manifest())


def test_what_is_no_run_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run folder"):
        load_run(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(RunError, match="cannot be read"):
        load_run(tmp_path)
    RunWriter(tmp_path / "run", manifest()).finish()
    (tmp_path / "run" / TABLE).write_bytes(b"PAR1 not really")
    with pytest.raises(RunError, match="cannot be read"):
        load_run(tmp_path / "run")


def test_an_unwritable_folder_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write the run folder"):
        RunWriter(tmp_path / "file" / "run", manifest())


def test_a_run_of_an_older_version_can_be_reported(tmp_path: Path) -> None:
    """Columns that it did not write are not known; its manifest lacks what came later."""
    old = to_batch([record(0), record(1)])
    wanted = [
        name
        for name in old.schema.names
        if name not in ("connection_reused", "answered_by", "tls_ms", "first_merged")
    ]
    table = pa.Table.from_batches([old]).select(wanted)
    text = (
        msgspec.json.encode(manifest(num_prompts=2))
        .decode()
        .replace('"workers":[]', '"workers":[{"worker":"local"}]')
    )
    (tmp_path / "run.json").write_text(text)
    pq.write_table(table, tmp_path / "requests.parquet")
    assert "Successful requests:                     2" in block(
        analyze(load_run(tmp_path))
    )


def test_a_quoted_prompt_is_kept_out_of_the_error() -> None:
    """However the server has escaped, shortened or re-spaced it."""
    prompt = 'Line one of the secret\nprompt says "hello", 你好，这是一个关于自行车的很长的问题 and more text that follows here'
    collapsed = " ".join(prompt.split())
    quotes = [
        prompt,
        collapsed,
        json.dumps(prompt),
        json.dumps(prompt, ensure_ascii=False),
        collapsed[20:90],
        json.dumps(collapsed)[10:120],
    ]
    for quote in quotes:
        kept = _without_prompt(prompt, f"HTTP 422: input {quote} is bad")
        assert (
            kept == "HTTP 422: … (the server quotes the prompt; --save-texts stores it)"
        )
    assert _without_prompt(
        prompt, "HTTP 500: out of memory on device 0, try again"
    ).endswith("try again")
    assert _without_prompt("hi", "HTTP 500: hi is no good") == "HTTP 500: hi is no good"


def test_records_that_come_while_others_are_being_written_are_kept() -> None:
    """A slow disk: every write takes a while, in which more records come. Each is written once, in
    order."""
    import gevent

    from llama_load.loadgen.run.recorder import Recorder

    class SlowDisk:
        def __init__(self) -> None:
            self.written: list[str] = []

        def append(self, records: Sequence[RequestRecord], _anywhere: bool) -> None:
            gevent.sleep(0.01)  # a disk that is slow
            self.written.extend(record.request_id for record in records)

    disk = SlowDisk()
    recorder = Recorder(disk.append, Path("slow"), every_s=0.005)
    for number in range(60):
        recorder.add(record(number))
        gevent.sleep(0.001)  # between two records
    assert recorder.close() == []
    assert disk.written == [f"r{number}" for number in range(60)]


@pytest.mark.parametrize("at", [0.05, 0.3, 0.6, 0.95])
def test_a_damaged_table_is_one_sentence(tmp_path: Path, at: float) -> None:
    """Wherever the bytes are broken: pyarrow raises an OSError for some of these places."""
    writer = RunWriter(tmp_path / "run", manifest())
    writer.append([record(number) for number in range(50)])
    writer.finish()
    table = tmp_path / "run" / TABLE
    data = bytearray(table.read_bytes())
    place = int(len(data) * at)
    data[place : place + 40] = b"\xff" * 40
    table.write_bytes(data)
    with pytest.raises(RunError, match="cannot be read"):
        load_run(tmp_path / "run")


def test_folders_with_texts_are_their_owners_alone(tmp_path: Path) -> None:
    """Whatever the umask allows; files are no more open than their folder."""
    old = os.umask(0)
    try:
        for name, options, modes in (
            ("a", {}, (0o750, 0o640)),
            ("b", {"save_texts": True}, (0o700, 0o600)),
        ):
            writer = RunWriter(
                tmp_path / name, manifest(num_prompts=1, options=options)
            )
            writer.append([record(0)])
            writer.finish()
            writer.release()
            files = {
                stat.S_IMODE(file.stat().st_mode)
                for file in (tmp_path / name).iterdir()
                if file.suffix in (".json", ".parquet")
            }
            assert (stat.S_IMODE((tmp_path / name).stat().st_mode), files) == (
                modes[0],
                {modes[1]},
            )
    finally:
        os.umask(old)


def test_lists_that_nobody_wrote_are_empty() -> None:
    """A file of another program has the column, and no value in it."""
    whole = pa.Table.from_batches([to_batch([record(number) for number in range(3)])])
    place = whole.column_names.index("itl_ms")
    table = whole.set_column(place, "itl_ms", pa.nulls(3, pa.list_(pa.float32())))
    assert aligned(table)["itl_ms"].to_pylist() == [[], [], []]
    run = Run(
        Path("run"), manifest(num_prompts=3), Records(aligned(table)), recovered=False
    )
    assert analyze(run).total.completed == 3


def test_equal_texts_of_a_column_are_one_object() -> None:
    """Of a million requests the host alone would take 80 MB."""
    rows = [
        record(index, host=host)
        for index, host in enumerate(["http://a:1", "http://b:1"] * 50)
    ]
    records = Records(
        pa.concat_tables(pa.Table.from_batches([to_batch([row])]) for row in rows)
    )
    hosts = records.strings("host")
    assert hosts == [row.host for row in rows]
    assert len({id(host) for host in hosts}) == 2
    assert records.strings("model") == [None] * 100
    assert records.strings("prompt_index") == list(range(100))
    assert records.where(records.equals("host", "x")).strings("host") == []


def test_warm_up_and_run_have_no_conversation_in_common() -> None:
    """Each counts its prompts from 0."""
    rows = [
        record(0, conversation_start=0, warmup=True),
        record(0, conversation_start=0),
        record(1, conversation_start=0),
        record(0, conversation_start=0, workload="agent"),
        record(2),
    ]
    warmup, first, second, other, alone = table(*rows).conversations()
    assert first == second is not None
    assert len({warmup, first, other}) == 3
    assert alone is None


def test_a_caller_may_change_what_it_read_and_no_other_sees_it() -> None:
    rows = table(record(0), record(1))
    first = rows.numbers("ttft_ms")
    expected = [*first]
    first[:] = 0.0
    assert [*rows.numbers("ttft_ms")] == expected


def test_columns_of_many_rows_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would take as much memory as the table."""
    monkeypatch.setattr("llama_load.run_folder.observed.records.MOST_KEPT_ROWS", 1)
    for rows, kept in ((table(record(0)), 1), (table(record(0), record(1)), 0)):
        rows.equals("status", "ok")
        assert len(rows._kept) == kept
