"""Validates record batches from other processes before they are used.

Arrow trusts the offsets and lengths in a message: one that points outside its buffers crashes the
process, and a compressed batch of 52 kB can expand to 1.5 GB.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from llama_load.ground.errors import RunError
from llama_load.run_folder.observed.record import schema

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

# A worker sends a few dozen records at a time; with a million token gaps each they take 4 MB per
# record.
MOST_BYTES = 64 * 1024 * 1024
MOST_ROWS = 100_000
LEAST_ROW_BYTES = 8  # a record has several numbers of that size
# Larger than any count or instant in ns (146 years); sums and clock shifts of such values stay
# within 64 bits.
MOST_INTEGER = 2**62
# The most before a worker's instants are shifted to the master's clock.
MOST_SHIFTED = 2**61
# Shorter columns are checked together: 60 columns of a few records each take 0.5 ms one by one.
JOINED_BELOW = 1_000
# Indices of Message's field `header` and RecordBatch's field `compression` in their vtables
# (Arrow's Message.fbs).
_HEADER = 2
_COMPRESSION = 3


class BadRecords(RunError):
    """These bytes are not a valid batch of records."""


def read_batch(data: bytes) -> pa.RecordBatch:
    """Read a batch with the columns of `schema`, packed by `RecordBatch.serialize`. Raises
    BadRecords."""
    import pyarrow as pa

    size = len(data)
    if size > MOST_BYTES:
        raise BadRecords(f"a batch of {size} bytes is larger than {MOST_BYTES}")
    try:
        message = pa.ipc.read_message(pa.py_buffer(data))
        batch = unpacked(message, schema())
    except (pa.ArrowException, OSError, EOFError) as error:
        raise BadRecords(f"a batch of records cannot be read: {error}") from None
    if batch.num_rows > MOST_ROWS:
        raise BadRecords(
            f"a batch of {batch.num_rows} records is larger than {MOST_ROWS}"
        )
    return batch


def unpacked(message: pa.Message, columns: pa.Schema) -> pa.RecordBatch:
    """The batch in an IPC message, if it is uncompressed and fits the schema. Raises BadRecords, or
    pyarrow's exceptions."""
    import pyarrow as pa

    is_plain = message.type == "record batch"
    try:
        if is_plain and _is_compressed(memoryview(message.metadata)):
            is_plain = False
    except (struct.error, IndexError):
        is_plain = False
    if not is_plain:
        raise BadRecords("a message is not an uncompressed batch of records")

    batch = pa.ipc.read_record_batch(message, columns)
    # Columns of other types, such as null or run-end encoded ones, have any number of rows in no
    # bytes. (Ours are flat: looking at all 60 takes 0.1 ms.)
    is_ours = columns is schema()
    are_flat = is_ours or all(is_flat(field.type) for field in columns)
    least_bytes = batch.num_rows * LEAST_ROW_BYTES
    if not are_flat or least_bytes > len(message.body or b""):
        raise BadRecords(
            "a batch of records has columns of other types, or more rows than its bytes can hold"
        )
    batch.validate(full=True)
    return batch


def is_flat(kind: pa.DataType) -> bool:
    """Whether it is a number, a text (also as a dictionary), or a list of numbers."""
    import pyarrow as pa

    types = pa.types
    if types.is_list(kind) or types.is_large_list(kind):
        return bool(
            types.is_integer(kind.value_type) or types.is_floating(kind.value_type)
        )
    if types.is_dictionary(kind):
        kind = kind.value_type
    is_number = (
        types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    )
    return bool(is_number or types.is_string(kind) or types.is_large_string(kind))


def check_integers(columns: Any, most: int = MOST_INTEGER) -> None:
    """Raises BadRecords if an integer exceeds `most`."""
    import numpy as np

    short = []
    for values in _integers(columns):
        if len(values) < JOINED_BELOW:
            short.append(values)
        else:
            _check_bounds(values, most)
    if short:
        _check_bounds(np.concatenate(short), most)


def _integers(columns: Any) -> Iterator[NDArray[np.int64]]:
    """The values of integer columns, those under nulls included, piece by piece."""
    import numpy as np
    import pyarrow as pa

    for column in columns:
        if not pa.types.is_int64(column.type):
            continue
        parts = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        for part in parts:
            buffer = part.buffers()[1]
            if buffer is not None and len(part):
                yield np.frombuffer(buffer, np.int64, len(part), 8 * part.offset)


def _check_bounds(values: NDArray[np.int64], most: int) -> None:
    if values.max() > most or values.min() < -most:
        raise BadRecords("a record holds a number beyond all counts and instants")


def _is_compressed(metadata: memoryview) -> bool:
    """Whether this metadata (a flatbuffer) declares compressed buffers."""
    # the length in front of an encapsulated message
    start = 8 if bytes(metadata[:4]) == b"\xff\xff\xff\xff" else 0
    table = metadata[start:]
    message = struct.unpack_from("<I", table)[0]
    place = _field(table, message, _HEADER)
    if place is None:
        return True
    header = place + struct.unpack_from("<I", table, place)[0]
    return _field(table, header, _COMPRESSION) is not None


def _field(table: memoryview, place: int, number: int) -> int | None:
    """The offset of a field of the table at `place`; None if it is absent."""
    distance = struct.unpack_from("<i", table, place)[0]
    vtable = place - distance
    if vtable < 0:
        raise IndexError("a table is outside its buffer")
    size = struct.unpack_from("<H", table, vtable)[0]
    at = 4 + 2 * number
    if at + 2 > size:
        return None
    offset = struct.unpack_from("<H", table, vtable + at)[0]
    return place + offset if offset else None
