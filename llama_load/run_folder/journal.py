"""The journal: record batches, each with a marker and a checksum, so that damage to one batch
leaves the others readable.

A frame is a header and an Arrow IPC message: the schema once, then record batches. The header,
little-endian:

    8 bytes   the marker; its first byte is in no UTF-8 text
    u32       length of the message in bytes
    u32       the batch's schema: CRC-32 of the schema's message
    u32       CRC-32 of the two preceding numbers and of the message

A packed frame has a marker of its own; its message is u32, the length of the IPC message, and that
message compressed with zstd.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from llama_load.outside.budget import spend_bytes
from llama_load.outside.foreign_files import TooLarge, open_foreign
from llama_load.run_folder.observed.foreign_records import (
    BadRecords,
    check_integers,
    unpacked,
)
from llama_load.run_folder.observed.record import aligned, schema
from llama_load.run_folder.whole_file import new_file

if TYPE_CHECKING:
    import pyarrow as pa

SEARCH_BYTES = 1 << 20
# On disk and unpacked.
MOST_JOURNAL_BYTES = 4 << 30
# Frames are at most this long, also unpacked: the master's queue of records and one batch more.
MOST_FRAME_BYTES = 256 << 20
# Batches are joined up to this many rows: 60 columns of 4 rows each take as much memory as 40 rows.
JOINED_ROWS = 5000
MARKER = b"\xf5\0LLREC1"
PACKED_MARKER = b"\xf5\0LLPAK1"
_ANY_MARKER = MARKER[:4]  # both begin with it
_HEADER = struct.Struct("<8sIII")
_SUMMED = slice(8, 16)  # length and schema
_RAW_LENGTH = struct.Struct("<I")


class Journal:
    """A journal open for writing. Appended batches survive `kill -9`, and while it is open also the
    removal of its folder."""

    def __init__(self, path: Path) -> None:
        """Raises OSError if the file cannot be created or exists."""
        self._fd = new_file(path, os.O_RDWR | os.O_APPEND)
        self._is_empty = True

    def append(self, batch: pa.RecordBatch, *, packed: bool = False) -> None:
        """Add a batch; the kernel has it when this returns. Raises OSError if the disk refuses; the
        journal is then unchanged."""
        data = _packed_frame(batch.serialize()) if packed else _frame(batch.serialize())
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

    def clear(self) -> None:
        """Remove all batches: they are elsewhere."""
        os.ftruncate(self._fd, 0)
        self._is_empty = True

    def read(self) -> JournalContents:
        """Its contents, also if the file has been removed."""
        return _contents(_file(self._fd))

    def close(self) -> None:
        """No more batches."""
        os.close(self._fd)


@dataclass(slots=True)
class JournalContents:
    """The readable batches of a journal as one table, and its damaged ranges: (begin, end) in
    bytes."""

    table: pa.Table
    gaps: list[tuple[int, int]] = field(default_factory=list)

    @property
    def unreadable_bytes(self) -> int:
        """Bytes that cannot be read."""
        return sum(end - begin for begin, end in self.gaps)


def read_journal(path: Path, most_bytes: int = MOST_JOURNAL_BYTES) -> JournalContents:
    """The contents of a journal; empty without a file. Raises OSError, TooLarge: over `most_bytes`,
    on disk or unpacked."""
    if not path.is_file():
        return parse(b"")
    with open_foreign(path, most_bytes, inside=path.parent) as opened:
        contents = _contents(_file(opened.fileno()), most_bytes)
    spend_bytes(decoded=contents.table.nbytes)
    return contents


def parse(data: bytes) -> JournalContents:
    """The contents of a journal, however damaged."""
    return _contents(_Source(len(data), lambda at, size: data[at : at + size]))


@dataclass(frozen=True, slots=True)
class _Source:
    """The bytes of a journal, read piece by piece: a journal of a million answers is larger than
    their table."""

    size: int
    read: Callable[[int, int], bytes]  # from, how many

    def find(self, mark: bytes, at: int) -> int:
        """The next place of these bytes; the end if there is none."""
        while at < self.size:
            piece = self.read(at, SEARCH_BYTES)
            place = piece.find(mark)
            if place >= 0:
                return at + place
            if len(piece) < SEARCH_BYTES:
                break
            at += len(piece) - len(mark) + 1
        return self.size


def _file(fd: int) -> _Source:
    def read(at: int, size: int) -> bytes:
        pieces = []
        while size and (piece := os.pread(fd, size, at)):
            pieces.append(piece)
            at += len(piece)
            size -= len(piece)
        return b"".join(pieces)

    return _Source(os.fstat(fd).st_size, read)


def _contents(source: _Source, most_bytes: int | None = None) -> JournalContents:
    import pyarrow as pa

    by_schema, gaps = _batches(source, most_bytes)
    tables = [schema().empty_table()]
    for part in by_schema:
        if part.is_ours:
            tables += part.tables
        else:
            gaps = [(0, source.size)]
    return JournalContents(pa.concat_tables(tables), gaps)


@cache
def _schema_message() -> bytes:
    message: bytes = schema().serialize().to_pybytes()
    return message


def _frame(message: Any, marker: bytes = MARKER) -> bytes:
    view = memoryview(message)
    numbers = struct.pack("<II", view.nbytes, crc32(_schema_message()))
    return b"".join(
        (marker, numbers, struct.pack("<I", crc32(view, crc32(numbers))), view)
    )


def _packed_frame(message: Any) -> bytes:
    import pyarrow as pa

    size = memoryview(message).nbytes
    return _frame(
        _RAW_LENGTH.pack(size) + pa.Codec("zstd").compress(message, asbytes=True),
        PACKED_MARKER,
    )


def _unpacked_message(message: bytes) -> Any:
    """Raises ValueError and pyarrow's exceptions."""
    import pyarrow as pa

    if (
        len(message) < _RAW_LENGTH.size
        or (size := _RAW_LENGTH.unpack_from(message)[0]) > MOST_FRAME_BYTES
    ):
        raise ValueError("a packed batch of a length that no batch has")
    return pa.Codec("zstd").decompress(memoryview(message)[_RAW_LENGTH.size :], size)


class _Joined:
    """The batches of one schema as tables of about `JOINED_ROWS` rows, with our columns. Batches
    with impossible numbers are left out."""

    def __init__(self) -> None:
        self.tables: list[pa.Table] = []
        self.is_ours = True  # else it has columns of another program
        self.bad: list[tuple[int, int]] = []  # begin and end of the batches left out
        self._waiting: list[tuple[pa.RecordBatch, int, int]] = []
        self._rows = 0

    def add(self, batch: pa.RecordBatch, begin: int, end: int) -> None:
        self._waiting.append((batch, begin, end))
        self._rows += batch.num_rows
        if self._rows >= JOINED_ROWS:
            self.join()

    def join(self) -> None:
        """Join what is waiting. The check takes 0.5 ms whether it is for 4 rows or for all of
        them."""
        import pyarrow as pa

        waiting = self._waiting
        self._waiting = []
        self._rows = 0
        if not waiting:
            return

        table = pa.Table.from_batches([batch for batch, _, _ in waiting])
        try:
            table = table.combine_chunks()
            check_integers(table.columns)
            self._keep(table)
        except (pa.ArrowException, BadRecords):
            for batch, begin, end in waiting:
                try:
                    check_integers(batch.columns)
                    self._keep(pa.Table.from_batches([batch]))
                except BadRecords:
                    self.bad.append((begin, end))

    def _keep(self, table: pa.Table) -> None:
        """At once, because the columns that are empty take half of the memory until then."""
        import pyarrow as pa

        try:
            self.tables.append(aligned(table))
        except (pa.ArrowException, ValueError, KeyError):
            self.is_ours = False


def _batches(
    source: _Source, most_bytes: int | None
) -> tuple[list[_Joined], list[tuple[int, int]]]:
    """The records by their schemas, and the gaps."""
    import pyarrow as pa

    # in case the schema's frame is damaged
    schemas: dict[int, pa.Schema] = {crc32(_schema_message()): schema()}
    joined: dict[int, _Joined] = {}
    gaps: list[tuple[int, int]] = []
    unpacked_bytes = 0
    for frame in _frames(source):
        if frame.message is not None:
            try:
                message = (
                    _unpacked_message(frame.message)
                    if frame.is_packed
                    else frame.message
                )
                unpacked_bytes += len(message)
                if most_bytes is not None and unpacked_bytes > most_bytes:
                    raise TooLarge(
                        f"its batches have more than {most_bytes >> 20:,} MiB"
                    )
                read = pa.ipc.read_message(pa.py_buffer(message))
                if read.type == "schema":
                    schemas[frame.schema] = pa.ipc.read_schema(read)
                    continue
                batch = unpacked(read, schemas[frame.schema])
                joined.setdefault(frame.schema, _Joined()).add(
                    batch, frame.begin, frame.end
                )
                continue
            except TooLarge:
                raise
            except (pa.ArrowException, OSError, ValueError, KeyError, BadRecords):
                pass  # the checksum is right, but this is no batch of ours
        gaps.append((frame.begin, frame.end))
    for part in joined.values():
        part.join()
        gaps += part.bad
    return list(joined.values()), _merged(gaps)


def _merged(gaps: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """In order; what follows without a break is one."""
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(gaps):
        if merged and merged[-1][1] == begin:
            begin = merged.pop()[0]
        merged.append((begin, end))
    return merged


class _Frame(NamedTuple):
    """A frame from `begin` to `end` in bytes; a damaged range has no message."""

    begin: int
    end: int
    schema: int = 0
    message: bytes | None = None
    is_packed: bool = False


def _frames(source: _Source) -> Iterator[_Frame]:
    """The frames and damaged ranges in order; reading continues at the next marker after damage."""
    at = 0
    while at < source.size:
        header = source.read(at, _HEADER.size)
        body = at + _HEADER.size
        if header.startswith((MARKER, PACKED_MARKER)) and len(header) == _HEADER.size:
            _, length, key, checksum = _HEADER.unpack(header)
            message = source.read(body, length) if length <= MOST_FRAME_BYTES else b""
            if (
                len(message) == length
                and crc32(message, crc32(header[_SUMMED])) == checksum
            ):
                yield _Frame(
                    at, body + length, key, message, header.startswith(PACKED_MARKER)
                )
                at = body + length
                continue
        end = source.find(_ANY_MARKER, at + 1)
        yield _Frame(at, end)
        at = end
