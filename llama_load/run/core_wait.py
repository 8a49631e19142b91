"""How long the event loop's thread was ready to run but waited for a core, from the kernel's account of the thread."""

from __future__ import annotations

import os
import sys
import threading
import time

from llama_load.units import NS_PER_MS

_LINE_BYTES = 64  # ns on a core, ns waiting, time slices: three numbers of at most 20 digits


class CoreWait:
    """Waits of the calling thread from `start` on. `total_ms`, the `longest_ms` between two samples, and the `share` of the time;
    all None where the kernel keeps no account."""

    def __init__(self) -> None:
        self._fd = -1
        self._began = self._last = (0, 0)  # (now, waited), ns
        self._longest_ns = 0

    def start(self) -> None:
        """Count from now on."""
        self.close()
        if sys.platform == "linux":
            try:
                # Opened for as long as the thread is measured: reading it takes 3 us, opening it 20.
                self._fd = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                self._fd = -1
        self._longest_ns = 0
        self._began = self._last = (time.monotonic_ns(), self._waited_ns())

    def sample(self) -> None:
        """Read the account; to be called a few times a second, so that the longest wait shows."""
        if self._fd >= 0:
            waited_ns = self._waited_ns()
            self._longest_ns = max(self._longest_ns, waited_ns - self._last[1])
            self._last = (time.monotonic_ns(), waited_ns)

    def close(self) -> None:
        """Read a last time."""
        if self._fd >= 0:
            self.sample()
            os.close(self._fd)
            self._fd = -1

    @property
    def total_ms(self) -> float | None:
        """All waits together."""
        return (self._last[1] - self._began[1]) / NS_PER_MS if self._last[1] else None

    @property
    def longest_ms(self) -> float | None:
        """The longest wait between two samples."""
        return self._longest_ns / NS_PER_MS if self._last[1] else None

    @property
    def share(self) -> float | None:
        """Waits / time, 0 to 1."""
        elapsed_ns = self._last[0] - self._began[0]
        return (self._last[1] - self._began[1]) / elapsed_ns if self._last[1] and elapsed_ns else None

    def _waited_ns(self) -> int:
        """0 where it is unknown: every thread that ran at all has waited for some time."""
        if self._fd < 0:
            return 0
        try:
            return int(os.pread(self._fd, _LINE_BYTES, 0).split()[1])
        except (OSError, IndexError, ValueError):
            return 0
