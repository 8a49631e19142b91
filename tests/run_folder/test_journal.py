"""The journal, and what is left of it after every kind of damage."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_load.analysis.results.results import analyze
from llama_load.run_folder import RunWriter, load_run
from llama_load.run_folder.journal import MARKER, Journal, parse, read_journal
from llama_load.run_folder.manifest import JOURNAL
from llama_load.run_folder.observed.record import schema, to_batch
from llama_load.run_folder.reading import recover
from tests.make_records import manifest, record

BATCHES = 8
PER_BATCH = 3


@cache
def healthy() -> tuple[bytes, list[int]]:
    """A journal of 8 batches, and where its frames begin (the schema's first) and the last one
    ends."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "j")
        for number in range(BATCHES):
            journal.append(
                to_batch(
                    [record(number * PER_BATCH + place) for place in range(PER_BATCH)]
                )
            )
        journal.close()
        data = (Path(folder) / "j").read_bytes()
    begins = [at for at in range(len(data)) if data.startswith(MARKER, at)]
    return data, [*begins, len(data)]


def ids(table: pa.Table) -> list[str]:
    return [str(value) for value in table["request_id"].to_pylist()]


def of_batches(numbers: list[int]) -> list[str]:
    return [
        f"r{number * PER_BATCH + place}"
        for number in numbers
        for place in range(PER_BATCH)
    ]


def damaged(data: bytes, kind: str, place: float, size: int, junk: bytes) -> bytes:
    """The bytes with some of them changed, cut out, put in or zeroed; `place` is from 0 to 1."""
    at = int(place * (len(data) - 1))
    return {
        "flip": data[:at] + bytes([data[at] ^ (1 + size % 255)]) + data[at + 1 :],
        "cut": data[:at] + data[at + size :],
        "insert": data[:at] + junk + data[at:],
        "zero": data[:at] + b"\0" * len(data[at : at + size]) + data[at + size :],
        "truncate": data[:at],
    }[kind]


@given(
    st.sampled_from(["flip", "cut", "insert", "zero", "truncate"]),
    st.floats(0, 1),
    st.integers(1, 20_000),
    st.binary(min_size=1, max_size=200),
)
@settings(max_examples=settings().max_examples // 2)
def test_every_batch_that_is_not_damaged_itself_is_read(
    kind: str, place: float, size: int, junk: bytes
) -> None:
    """In batches, their headers and the schema: every batch whose bytes are still there is read, in
    order, and no other; what remains of the others is named."""
    data, frames = healthy()
    hurt = damaged(data, kind, place, size, junk)
    spans = zip(frames[1:-1], frames[2:], strict=True)
    contents = parse(hurt)
    assert ids(contents.table) == of_batches(
        [number for number, (begin, end) in enumerate(spans) if data[begin:end] in hurt]
    )
    read = sum(
        end - begin
        for begin, end in zip(frames, frames[1:], strict=False)
        if data[begin:end] in hurt
    )
    assert contents.unreadable_bytes == len(hurt) - read


@given(st.binary(max_size=400), st.integers(0, 3))
def test_anything_at_all_is_read_without_an_exception(data: bytes, kind: int) -> None:
    """Noise, alone and behind what journals of today and of before begin with; all of it is
    damage."""
    beginning = [b"", MARKER, b"\xff\xff\xff\xff", schema().serialize().to_pybytes()][
        kind
    ]
    contents = parse(beginning + data)
    assert contents.table.num_rows == 0


def test_a_healthy_journal_has_no_gap() -> None:
    contents = parse(healthy()[0])
    assert (contents.gaps, ids(contents.table)) == (
        [],
        of_batches(list(range(BATCHES))),
    )


def test_an_arrow_stream_without_frames_is_no_journal() -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema()) as writer:
        writer.write_batch(to_batch([record(0)]))
    data = sink.getvalue().to_pybytes()
    assert (parse(data).table.num_rows, parse(data).gaps) == (0, [(0, len(data))])


def test_a_journal_that_was_removed_is_read_by_the_process_that_writes_it(
    tmp_path: Path,
) -> None:
    journal = Journal(tmp_path / "j")
    journal.append(to_batch([record(0)]))
    (tmp_path / "j").unlink()
    journal.append(to_batch([record(1)]))
    assert ids(journal.read().table) == ["r0", "r1"]


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / JOURNAL).symlink_to(tmp_path / "victim")
    with pytest.raises(FileExistsError):
        Journal(tmp_path / JOURNAL)
    assert (tmp_path / "victim").read_bytes() == b"precious"


@pytest.mark.parametrize("killed", [True, False])
def test_the_report_names_the_damage_and_the_journal_stays(
    tmp_path: Path, killed: bool
) -> None:
    """A flipped byte in the second of three batches, of a run that was killed and of one that ends:
    the other two are in the table, the verdict is INCOMPLETE with a sentence, and the journal is
    still there after the report."""
    folder = tmp_path / "run"
    writer = RunWriter(folder, manifest(end="running", num_prompts=2))
    for number in range(3):
        writer.append([record(number)])
    journal = folder / JOURNAL
    data = bytearray(journal.read_bytes())
    data[data.rfind(MARKER) - 100] ^= 1
    journal.write_bytes(data)
    if killed:
        writer.release()
        recover(load_run(folder))
    else:
        writer.manifest.end = "complete"
        writer.finish()
    run = load_run(folder)
    assert not run.recovered
    assert run.records.strings("request_id") == ["r0", "r2"]
    assert read_journal(journal).table.num_rows == 2
    checks = [
        check
        for check in analyze(run).verdict.checks
        if check.name == "damaged_records"
    ]
    assert [check.word for check in checks if not check.ok] == ["INCOMPLETE"]
    assert "requests.arrows is damaged in 1 place (" in checks[0].text
    assert ("1 record is missing" in checks[0].text) == (not killed)
