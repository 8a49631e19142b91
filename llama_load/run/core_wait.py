"""How long the thread that receives was ready to run but waited for a core, from the kernel's account of the thread."""

from __future__ import annotations

import time
from collections.abc import Callable

from llama_load.wire.priority import waited_s


class CoreWait:
    """Waits of a thread (by default the main one) from `start` on.

    `total_ms`, the `longest_ms` between two samples, and the `share` of the time;
    all None where the kernel keeps no account."""

    def __init__(self, waited_s: Callable[[], float] = waited_s) -> None:
        self._waited_s = waited_s
        self.start()

    def start(self) -> None:
        """Count from now on."""
        self._began = self._last = time.monotonic(), self._waited_s()
        self._longest_s = 0.0

    def sample(self) -> None:
        """Read the account, which takes 20 us; to be called a few times a second, so that the longest wait shows."""
        before_s, self._last = self._last[1], (time.monotonic(), self._waited_s())
        self._longest_s = max(self._longest_s, self._last[1] - before_s)

    @property
    def total_ms(self) -> float | None:
        """All waits together."""
        return 1e3 * (self._last[1] - self._began[1]) if self._last[1] else None  # every thread has waited for some time

    @property
    def longest_ms(self) -> float | None:
        """The longest wait between two samples."""
        return 1e3 * self._longest_s if self._last[1] else None

    @property
    def share(self) -> float | None:
        """Waits / time, 0 to 1."""
        elapsed_s = self._last[0] - self._began[0]
        return (self._last[1] - self._began[1]) / elapsed_s if self._last[1] and elapsed_s else None
