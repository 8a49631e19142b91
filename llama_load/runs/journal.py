"""The journal: record batches, each with a marker and a checksum, so that damage to one batch leaves the others readable.

A frame is a header and an Arrow IPC message: the schema once, then record batches. The header, little-endian:

    8 bytes   the marker; its first byte is in no UTF-8 text
    u32       length of the message in bytes
    u32       the batch's schema: CRC-32 of the schema's message
    u32       CRC-32 of the two preceding numbers and of the message

Older journals of version 0.1 are plain Arrow streams without frames; they are read up to their first damage.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from llama_load.foreign_records import BadRecords, check_integers, unpacked
from llama_load.record import aligned, schema
from llama_load.runs.whole_file import new_file

if TYPE_CHECKING:
    import pyarrow as pa

READ_BYTES = 16 << 20
MARKER = b"\xf5\0LLREC1"
_HEADER = struct.Struct("<8sIII")
_SUMMED = slice(8, 16)  # length and schema


class Journal:
    """A journal open for writing. Appended batches survive `kill -9`, and while it is open also the removal of its folder."""

    def __init__(self, path: Path) -> None:
        """Raises OSError if the file cannot be created or exists."""
        self._fd = new_file(path, os.O_RDWR | os.O_APPEND)
        self._is_empty = True

    def append(self, batch: pa.RecordBatch) -> None:
        """Add a batch; the kernel has it when this returns. Raises OSError if the disk refuses; the journal is then unchanged."""
        data = _frame(batch.serialize())
        if self._is_empty:
            data = _frame(_schema_message()) + data
        end = os.fstat(self._fd).st_size
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(self._fd, left) :]
        except OSError:
            os.ftruncate(self._fd, end)
            raise
        self._is_empty = False

    def read(self) -> JournalContents:
        """Its contents, also if the file has been removed."""
        data = bytearray()
        while piece := os.pread(self._fd, READ_BYTES, len(data)):
            data += piece
        return parse(bytes(data))

    def close(self) -> None:
        """No more batches."""
        os.close(self._fd)


@dataclass(slots=True)
class JournalContents:
    """The readable batches of a journal as one table, and its damaged ranges: (begin, end) in bytes."""

    table: pa.Table
    gaps: list[tuple[int, int]] = field(default_factory=list)

    @property
    def unreadable_bytes(self) -> int:
        """Bytes that cannot be read."""
        return sum(end - begin for begin, end in self.gaps)


def read_journal(path: Path) -> JournalContents:
    """The contents of a journal on disk; empty if there is no file. Raises OSError if the file cannot be read at all."""
    return parse(path.read_bytes() if path.is_file() else b"")


def parse(data: bytes) -> JournalContents:
    """The contents of a journal, however damaged."""
    import pyarrow as pa

    by_schema, gaps = _framed(data) if MARKER in data or not data else _unframed(data)
    tables = [schema().empty_table()]
    for batches in by_schema:
        try:
            tables.append(aligned(pa.Table.from_batches(batches)))
        except (pa.ArrowException, ValueError, KeyError):  # columns of another program
            gaps = [(0, len(data))]
    return JournalContents(pa.concat_tables(tables), gaps)


@cache
def _schema_message() -> bytes:
    message: bytes = schema().serialize().to_pybytes()
    return message


def _frame(message: Any) -> bytes:
    view = memoryview(message)
    numbers = struct.pack("<II", view.nbytes, crc32(_schema_message()))
    return b"".join((MARKER, numbers, struct.pack("<I", crc32(view, crc32(numbers))), view))


def _framed(data: bytes) -> tuple[list[list[pa.RecordBatch]], list[tuple[int, int]]]:
    """The batches by their schemas, and the gaps."""
    import pyarrow as pa

    schemas: dict[int, pa.Schema] = {crc32(_schema_message()): schema()}  # in case the schema's frame is damaged
    batches: dict[int, list[pa.RecordBatch]] = {}
    gaps: list[tuple[int, int]] = []
    for begin, end, key, message in _frames(data):
        if message is not None:
            try:
                read = pa.ipc.read_message(pa.py_buffer(message))
                if read.type == "schema":
                    schemas[key] = pa.ipc.read_schema(read)
                    continue
                batch = unpacked(read, schemas[key])
                check_integers(batch.columns)
                batches.setdefault(key, []).append(batch)
                continue
            except (pa.ArrowException, OSError, ValueError, KeyError, BadRecords):
                pass  # the checksum is right, but this is no batch of ours
        if gaps and gaps[-1][1] == begin:
            begin = gaps.pop()[0]
        gaps.append((begin, end))
    return list(batches.values()), gaps


def _frames(data: bytes) -> Iterator[tuple[int, int, int, memoryview | None]]:
    """Begin, end, schema and message of each frame. A damaged range has no message; reading continues at the next marker."""
    view = memoryview(data)
    at = 0
    while at < len(data):
        body = at + _HEADER.size
        if data.startswith(MARKER, at) and body <= len(data):
            _, length, key, checksum = _HEADER.unpack_from(data, at)
            message = view[body : body + length]
            if len(message) == length and crc32(message, crc32(view[at:][_SUMMED])) == checksum:
                yield at, body + length, key, message
                at = body + length
                continue
        following = data.find(MARKER, at + 1)
        end = len(data) if following < 0 else following
        yield at, end, 0, None
        at = end


def _unframed(data: bytes) -> tuple[list[list[pa.RecordBatch]], list[tuple[int, int]]]:
    """The same for a plain Arrow stream."""
    import pyarrow as pa

    batches: list[pa.RecordBatch] = []
    source = pa.BufferReader(data)
    end = 0
    try:
        messages = pa.ipc.MessageReader.open_stream(source)
        columns = pa.ipc.read_schema(messages.read_next_message())
        for message in messages:
            batch = unpacked(message, columns)
            check_integers(batch.columns)
            batches.append(batch)
            end = source.tell()
        end = source.tell()
    except (pa.ArrowException, OSError, ValueError, StopIteration, MemoryError, BadRecords):
        pass
    return [batches] if batches else [], [(end, len(data))] if end < len(data) else []
