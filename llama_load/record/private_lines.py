"""A file of lines for its owner alone, to which only whole lines are added."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from llama_load.ground.errors import UsageError
from llama_load.ground.open_flags import BINARY, NO_FOLLOW, NOT_INHERITED
from llama_load.outside.foreign_text import redacted_bytes

_FLAGS = os.O_CREAT | os.O_EXCL | os.O_RDWR | NO_FOLLOW | NOT_INHERITED | BINARY
_OWNER_ALONE = 0o600


class PrivateLines:
    """JSON lines, without known secrets. What the disk does not take stays in memory and is written
    with the next line; `fault` then says why."""

    def __init__(self, path: Path) -> None:
        """Make the file. UsageError: it exists, or cannot be made."""
        self.path = path
        self.lines = 0
        self.fault = ""
        self._size = 0
        self._unwritten: list[bytes] = []
        try:
            self._file = os.open(path, _FLAGS, _OWNER_ALONE)
        except FileExistsError:
            raise UsageError(
                f"{path} exists; choose another --out, or move it away"
            ) from None
        except OSError as error:
            raise UsageError(f"--out {path}: {error.strerror}") from None

    @property
    def unwritten(self) -> int:
        """Lines that are in memory alone."""
        return len(self._unwritten)

    def add(self, value: Any) -> None:
        """Write a line, after those that are still unwritten."""
        self._unwritten.append(redacted_bytes(msgspec.json.encode(value)) + b"\n")
        self.write()

    def write(self) -> bool:
        """Write what is unwritten. Whether all of it is."""
        while self._unwritten:
            line = self._unwritten[0]
            try:
                self._append(line)
            except OSError as error:
                self.fault = error.strerror or str(error)
                return False
            self._unwritten.pop(0)
            self._size += len(line)
            self.lines += 1
            self._is_written(len(line))
        self.fault = ""
        return True

    def _is_written(self, size: int) -> None:
        """A line of so many bytes is the last one of the file."""

    def _append(self, line: bytes) -> None:
        """Add a line. Raises OSError, and leaves the file as it was."""
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            os.ftruncate(self._file, self._size)
            os.lseek(self._file, self._size, os.SEEK_SET)
            raise

    def close(self) -> None:
        """Close it; an empty file is removed."""
        if not self._size and not self._unwritten:
            self.path.unlink(missing_ok=True)
        os.close(self._file)
