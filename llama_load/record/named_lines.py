"""A file of lines of which each may be written again, because what it is about went on."""

from __future__ import annotations

import os
import tempfile
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

from llama_load.record.private_lines import PrivateLines

# The place of replaced lines is given back once it is more than this, and more than the lines that
# are left: a conversation of 5 MiB may be written again with each of its turns.
LEAST_WASTE_BYTES = 16 << 20
_COPY_BYTES = 1 << 20


class NamedLines(PrivateLines):
    """Lines that have numbers. A line takes the place of an earlier one of its number once it is in
    the file, where spaces take the earlier one's: whoever reads the file finds whole lines."""

    def __init__(self, path: Path) -> None:
        """Make the file. UsageError: it exists, or cannot be made."""
        super().__init__(path)
        self._numbers: deque[int] = deque()  # of unwritten lines
        self._places: dict[int, tuple[int, int]] = {}
        self._kept_bytes = 0

    def put(self, number: int, value: Any) -> None:
        """Write the line of this number, in place of an earlier one."""
        self._numbers.append(number)
        self.add(value)

    def drop(self, number: int) -> None:
        """Remove the line of this number, if there is one."""
        at, size = self._places.pop(number, (0, 0))
        if size:
            self._kept_bytes -= size
            self.lines -= 1
            spaces = memoryview(b" " * (size - 1))
            while spaces:
                written = os.pwrite(self._file, spaces, at)
                at += written
                spaces = spaces[written:]

    def _is_written(self, size: int) -> None:
        number = self._numbers.popleft()
        self.drop(number)
        self._places[number] = (self._size - size, size)
        self._kept_bytes += size
        if self._size - self._kept_bytes > max(LEAST_WASTE_BYTES, self._kept_bytes):
            self.put_in_order()

    def put_in_order(self) -> None:
        """Write the lines into a new file in the order of their numbers, without blank ones. Where
        there is no room for it, the file stays as it is."""
        if self._size == self._kept_bytes and list(self._places) == sorted(
            self._places
        ):
            return
        try:
            copy, name = tempfile.mkstemp(dir=self.path.parent, prefix=".recording-")
        except OSError:
            return
        try:
            places = self._copy_lines(copy)
            Path(name).replace(self.path)
        except OSError:
            os.close(copy)
            with suppress(OSError):
                Path(name).unlink()
            return
        os.close(self._file)
        self._file = copy
        self._places = places
        self._size = self._kept_bytes

    def _copy_lines(self, copy: int) -> dict[int, tuple[int, int]]:
        """Raises OSError."""
        places = {}
        at = 0
        for number in sorted(self._places):
            begin, size = self._places[number]
            places[number] = (at, size)
            at += size
            end = begin + size
            while begin < end:
                piece = os.pread(self._file, min(_COPY_BYTES, end - begin), begin)
                begin += len(piece)
                rest = memoryview(piece)
                while rest:
                    rest = rest[os.write(copy, rest) :]
        return places
