"""Records that others packed are checked in full before they are looked at: none of these ends the
process or fills the memory."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_load.run_folder.observed.foreign_records import (
    MOST_INTEGER,
    BadRecords,
    check_integers,
    read_batch,
)
from llama_load.run_folder.observed.record import schema, to_batch
from tests.make_records import record

BATCH = to_batch([record(index) for index in range(3)])
DATA = BATCH.serialize().to_pybytes()


def test_a_good_batch_comes_through() -> None:
    assert read_batch(DATA).equals(BATCH)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_compressed_batch_is_refused_before_it_is_unpacked(codec: str) -> None:
    """52 kB of it became 1.5 GB."""
    rows = to_batch([record(0, error="x" * 50_000_000)])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(
        sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression=codec)
    ) as writer:
        writer.write_batch(rows)
    reader = pa.ipc.MessageReader.open_stream(pa.py_buffer(sink.getvalue()))
    reader.read_next_message()
    data = reader.read_next_message().serialize().to_pybytes()
    before = pa.total_allocated_bytes()
    with pytest.raises(BadRecords, match="not an uncompressed batch"):
        read_batch(data)
    assert pa.total_allocated_bytes() - before < 1_000_000


def test_offsets_outside_of_a_buffer_are_refused() -> None:
    """They ended the master with a segmentation fault."""
    data = to_batch([record(0, error="E" * 7777)]).serialize().to_pybytes()
    good, bad = struct.pack("<ii", 0, 7777), struct.pack("<ii", 0, 1 << 30)
    assert good in data
    data = data.replace(good, bad)
    with pytest.raises(BadRecords):
        read_batch(data)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: b"",
        lambda data: data[:100],
        lambda data: b"\0" * 1000,
        lambda data: schema().serialize().to_pybytes(),
        lambda data: pa.record_batch({"a": [1]}).serialize().to_pybytes(),
        lambda data: b"x" * (65 << 20),
    ],
)
def test_what_is_no_batch_is_refused(spoil: Callable[[bytes], bytes]) -> None:
    with pytest.raises(BadRecords):
        read_batch(spoil(DATA))


@given(st.integers(0, len(DATA) - 1), st.integers(1, 255))
def test_a_changed_byte_is_refused_or_harmless(at: int, by: int) -> None:
    try:
        batch = read_batch(DATA[:at] + bytes([DATA[at] ^ by]) + DATA[at + 1 :])
    except BadRecords:
        return
    batch.to_pylist()


def test_integers_are_bounded() -> None:
    check_integers(BATCH.columns)
    with pytest.raises(BadRecords):
        check_integers(to_batch([record(0, prompt_tokens=MOST_INTEGER + 1)]).columns)
