"""How long the thread that receives was ready to run but waited for a core, from the kernel's
account of the thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from llama_load.loadgen.wire.priority import WaitAccount


class _Reading(NamedTuple):
    """The account at one instant of the monotonic clock, s."""

    at_s: float
    waited_s: float


class CoreWait:
    """Waits of a thread (by default the main one) from `start` on.

    `total_ms`, the `longest_ms` between two samples, and the `share` of the time; all None where
    the kernel keeps no account. A sample that cannot be read (no descriptor is left) is left out:
    the account only grows, so the next one has all of it."""

    def __init__(self, waited_s: Callable[[], float | None] | None = None) -> None:
        self._waited_s = waited_s or WaitAccount().waited_s
        self.start()

    def start(self) -> None:
        """Count from now on."""
        self._began: _Reading | None = None
        self._last: _Reading | None = None
        self._longest_s = 0.0
        self.sample()

    def sample(self) -> None:
        """Read the account, which takes 2 us; to be called a few times a second, so that the
        longest wait shows."""
        waited = self._waited_s()
        self.is_current = waited is not None
        if waited is None:
            return

        reading = _Reading(time.monotonic(), waited)
        if self._last is None:
            self._began = reading
        else:
            self._longest_s = max(self._longest_s, waited - self._last.waited_s)
        self._last = reading

    @property
    def total_ms(self) -> float | None:
        """All waits together."""
        if self._began is None or self._last is None:
            return None
        return 1e3 * (self._last.waited_s - self._began.waited_s)

    @property
    def present_ms(self) -> float | None:
        """All waits together; None also where the last sample could not be read."""
        return self.total_ms if self.is_current else None

    @property
    def longest_ms(self) -> float | None:
        """The longest wait between two samples."""
        return None if self._last is None else 1e3 * self._longest_s

    @property
    def share(self) -> float | None:
        """Waits / time, 0 to 1."""
        if self._began is None or self._last is None:
            return None
        elapsed_s = self._last.at_s - self._began.at_s
        if not elapsed_s:
            return None
        return (self._last.waited_s - self._began.waited_s) / elapsed_s
