"""File descriptors for the end of a run: whatever has taken all others, the report can be
written."""

from __future__ import annotations

import os
from contextlib import suppress

# The tables, the journal, what is imported then, the upload's pipes: 20, three times over.
RESERVED = 64


class Reserve:
    """Descriptors that nobody else can take, from its making until `release`."""

    def __init__(self, count: int = RESERVED) -> None:
        """Takes fewer where so many are not left."""
        self._held: list[int] = []
        with suppress(OSError):
            for _ in range(count):
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def release(self) -> None:
        """They are needed now. Nothing happens the second time."""
        for descriptor in self._held:
            os.close(descriptor)
        self._held.clear()
