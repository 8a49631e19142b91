"""What a lost worker kept is brought into the run; and folders that do not hold what they
should."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from llama_load.analysis.results.results import analyze
from llama_load.ground.errors import UsageError
from llama_load.run_folder import MANIFEST, RunWriter, SpoolManifest, load_run
from llama_load.run_folder.journal import Journal
from llama_load.run_folder.manifest import JOURNAL
from llama_load.run_folder.observed.losses import LostWorker
from llama_load.run_folder.observed.record import CANCELLED, RequestRecord, to_batch
from llama_load.run_folder.reading import add_spool
from tests.make_records import MS, manifest, record

AHEAD_NS = 5_000_000_001


def spool(
    folder: Path, *records: RequestRecord, clock_offset_ns: int | None = -AHEAD_NS
) -> Path:
    """A worker's spool, its clock ahead of the master's."""
    folder.mkdir()
    (folder / MANIFEST).write_bytes(
        msgspec.json.encode(SpoolManifest("w1", clock_offset_ns))
    )
    journal = Journal(folder / JOURNAL)
    journal.append(to_batch(records))
    journal.close()
    return folder


def run_of(folder: Path, *records: RequestRecord, **about: object) -> Path:
    writer = RunWriter(folder, manifest(**about))
    writer.append(records)
    writer.finish()
    return folder


def test_what_is_not_on_record_comes_in_on_the_masters_clock(tmp_path: Path) -> None:
    """On record: 0; 1, sent again by another worker; and 2, cancelled there. The spool has 0 to 4,
    of which 4 was cancelled itself, and the warm-up's request 1."""
    folder = run_of(
        tmp_path / "run",
        record(0),
        record(1, request_id="other1"),
        record(2, request_id="other2", status=CANCELLED),
        end="running",
        lost=[LostWorker("w1", [3, 4, 9], 0)],
    )
    late = 5000 + 1e-6
    kept = spool(
        tmp_path / "spool",
        record(0),
        *(
            record(index, start_ms=late + 100 * index, scheduled_mono_ns=None)
            for index in (1, 2, 3)
        ),
        record(1, request_id="cancelled1", status=CANCELLED, start_ms=late),
        record(4, status=CANCELLED, start_ms=late),
        record(1, request_id="warm1", warmup=True, start_ms=late),
    )
    assert add_spool(load_run(folder), kept)[1] == 5
    again = load_run(folder)
    added = {row["request_id"]: row for row in again.records.table.to_pylist()[3:]}
    assert list(added) == ["r2", "r3", "cancelled1", "r4", "warm1"]
    assert (added["r3"]["started_mono_ns"], added["r3"]["ended_mono_ns"]) == (
        300 * MS,
        441 * MS,
    )
    assert added["r3"]["scheduled_mono_ns"] is None
    assert again.manifest.end == "interrupted"
    assert again.manifest.lost[0].possibly_sent == [9]
    assert add_spool(again, kept)[1] == 0
    assert len(load_run(folder).records) == 8


def test_a_run_that_had_ended_keeps_its_end(tmp_path: Path) -> None:
    folder = run_of(tmp_path / "run", record(0), end="time")
    assert add_spool(load_run(folder), spool(tmp_path / "spool", record(1)))[1] == 1
    assert load_run(folder).manifest.end == "time"


def test_a_spool_whose_clock_is_unknown_is_refused(tmp_path: Path) -> None:
    run = load_run(run_of(tmp_path / "run", record(0)))
    with pytest.raises(UsageError, match="has no clock offset"):
        add_spool(run, spool(tmp_path / "spool", record(1), clock_offset_ns=None))
    with pytest.raises(UsageError, match="is not a worker's spool"):
        add_spool(run, tmp_path)


def test_a_journal_that_lost_records_is_kept(tmp_path: Path) -> None:
    """Two batches were appended, the file system kept one: the table has that, the verdict names
    the rest."""
    writer = RunWriter(tmp_path / "run", manifest(end="running"))
    writer.append([record(0)])
    whole = (tmp_path / "run" / JOURNAL).stat().st_size
    writer.append([record(1), record(2)])
    with (tmp_path / "run" / JOURNAL).open("r+b") as file:
        file.truncate(whole + 100)
    writer.manifest.end = "complete"
    assert writer.finish().records.strings("request_id") == ["r0"]
    writer.release()
    assert (tmp_path / "run" / JOURNAL).exists()
    verdict = analyze(load_run(tmp_path / "run")).verdict
    assert verdict.word == "INCOMPLETE"
    assert (
        "requests.arrows is damaged in 1 place (100 bytes cannot be read), 2 records are missing"
        in verdict.headline
    )
