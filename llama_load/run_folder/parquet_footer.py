"""What a Parquet file says of its columns, read without pyarrow.

pyarrow's metadata of a row group ends the whole process where the description of a column
contradicts itself: its C++ exception is not turned into one of Python. Reading columns is safe.

Source: the format's parquet.thrift, and Thrift's compact protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# Types of the compact protocol.
STOP = 0
TRUE = 1
FALSE = 2
BYTE = 3
INTEGERS = (4, 5, 6)
DOUBLE = 7
BINARY = 8
LISTS = (9, 10)
MAP = 11
STRUCT = 12
DOUBLE_BYTES = 8
LONG_LIST = 15  # its length follows
# A description of columns is five levels deep; bytes of a number.
MOST_DEPTH = 16
MOST_NUMBER_BYTES = 10

# Fields of FileMetaData, RowGroup, ColumnChunk and ColumnMetaData.
ROW_GROUPS = 4
COLUMNS = 1
ROWS = 3
META_DATA = 3
TYPE = 1
PATH = 3
VALUES = 5
UNCOMPRESSED = 6

Struct = dict[int, Any]


@dataclass(frozen=True, slots=True)
class ColumnChunk:
    """A column of a row group: the first name of its path, its physical type by number, how many
    values it has (elements of lists are values), its bytes before compression, and the rows of its
    group."""

    name: str
    physical_type: int
    values: int
    uncompressed_bytes: int
    rows: int


def column_chunks(footer: bytes) -> Iterator[ColumnChunk]:
    """The columns of all row groups. Raises ValueError: it is no such footer."""
    try:
        for group in _Reader(footer).struct().get(ROW_GROUPS, []):
            for chunk in group.get(COLUMNS, []):
                about = chunk[META_DATA]
                yield ColumnChunk(
                    about[PATH][0].decode("utf-8", "replace"),
                    _integer(about, TYPE),
                    _integer(about, VALUES),
                    _integer(about, UNCOMPRESSED),
                    _integer(group, ROWS),
                )
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"its footer has no such columns: {error!r}") from None


def _integer(fields: Struct, number: int) -> int:
    """This field, which the file may say is of any type. Raises TypeError."""
    value = fields[number]
    if not isinstance(value, int):
        raise TypeError(f"field {number} is no number")
    return value


class _Reader:
    """Reads values one after the other. IndexError: the bytes end before."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._depth = 0

    def struct(self) -> Struct:
        """The fields by their numbers."""
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise ValueError(f"its footer is over {MOST_DEPTH} levels deep")
        fields: Struct = {}
        number = 0
        while (head := self._byte()) & 15 != STOP:
            step = head >> 4
            number = number + step if step else self._integer()
            kind = head & 15
            if kind in (TRUE, FALSE):
                fields[number] = kind == TRUE
            else:
                fields[number] = self._value(kind)
        self._depth -= 1
        return fields

    def _value(self, kind: int) -> Any:
        if kind in INTEGERS:
            return self._integer()
        if kind == BINARY:
            return self._bytes(self._number())
        if kind in LISTS:
            return self._list()
        if kind == STRUCT:
            return self.struct()
        if kind == DOUBLE:
            return self._bytes(DOUBLE_BYTES)
        if kind in (TRUE, FALSE, BYTE):
            return self._byte()
        if kind == MAP:
            return self._map()
        raise ValueError(f"its footer has a value of the unknown type {kind}")

    def _list(self) -> list[Any]:
        head = self._byte()
        length = head >> 4
        if length == LONG_LIST:
            length = self._number()
        self._check_length(length)
        return [self._value(head & 15) for _ in range(length)]

    def _map(self) -> None:
        length = self._number()
        self._check_length(length)
        if length:
            kinds = self._byte()
            for _ in range(length):
                self._value(kinds >> 4)
                self._value(kinds & 15)

    def _check_length(self, length: int) -> None:
        # Each element takes a byte at least.
        if length > len(self._data) - self._at:
            raise ValueError("its footer is cut off")

    def _bytes(self, count: int) -> bytes:
        begin = self._at
        self._check_length(count)
        self._at += count
        return self._data[begin : self._at]

    def _byte(self) -> int:
        byte = self._data[self._at]
        self._at += 1
        return byte

    def _number(self) -> int:
        number = 0
        for place in range(MOST_NUMBER_BYTES):
            byte = self._byte()
            number |= (byte & 127) << (7 * place)
            if byte < 128:
                return number
        raise ValueError("its footer has a number without an end")

    def _integer(self) -> int:
        number = self._number()
        return (number >> 1) ^ -(number & 1)
