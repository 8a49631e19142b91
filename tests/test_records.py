"""Records as columns, and the run folder that keeps them."""

from __future__ import annotations

import resource
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_load.errors import RunError, UsageError
from llama_load.record import RequestRecord, from_batch, schema, to_batch
from llama_load.runs import JOURNAL, TABLE, RunWriter, free_run_dir, load_run, recover
from tests.records import manifest, record


@given(
    st.lists(
        st.builds(
            record,
            st.integers(0, 1000),
            gaps_ms=st.lists(st.floats(0, 1e6, width=32), max_size=5).map(tuple),
            error=st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
            cached_tokens=st.none() | st.integers(0, 2**40),
            warmup=st.booleans(),
        ),
        max_size=4,
    )
)
def test_records_survive_the_trip_through_columns(records: list[RequestRecord]) -> None:
    assert [replace(r, itl_ms=list(r.itl_ms)) for r in from_batch(to_batch(records))] == records


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
    assert (again.recovered, again.manifest.end, len(again.records)) == (False, "interrupted", 2)


def test_a_full_disk_loses_only_what_did_not_fit(tmp_path: Path) -> None:
    """A limit on the file's size stands in for the disk. Once there is room again, the run goes on."""
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
    RunWriter(tmp_path / "run", manifest()).finish()
    with pytest.raises(UsageError, match="already holds a run"):
        RunWriter(tmp_path / "run", manifest())
    assert free_run_dir(tmp_path / "run") == tmp_path / "run-2"


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
