"""Resumes waiting greenlets, and does other work that can wait, a few at a time, so that sockets
are read in between.

When 400 streams end at once, 400 users write their records and send their next requests: 0.3 s of
work, which gevent would finish before it reads a socket again, while the tokens of all other
streams queue up and merge. Here they run for at most about 1 ms per iteration of the event loop.
The same holds for 400 users whom gevent wakes at once to send their first request.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from gevent.hub import Waiter

# A third of the shortest gap between tokens that is read in batches at all (see
# `llama_load.loadgen.wire.transport`).
BUDGET_NS = 1_000_000


class FairQueue:
    """A queue of waiting greenlets and other work. First come, first served."""

    def __init__(self, loop: Any) -> None:
        self._queue: deque[Callable[[None], object]] = deque()
        self._timer = loop.timer(0)
        self._armed = False  # until the loop has come round once more
        self._armed_ns = 0

    def wait(self) -> None:
        """Wait for a turn; return at once if no other greenlet is waiting, and this iteration of
        the loop has time left."""
        if not self._armed:
            self._arm()
        elif self._queue or time.monotonic_ns() - self._armed_ns > BUDGET_NS:
            waiter = Waiter()
            self.wake(waiter)
            waiter.get()

    def wake(self, waiter: Waiter) -> None:
        """Resume the greenlet that waits on `waiter` (or will) at its turn."""
        self.call(waiter.switch)

    def call(self, function: Callable[[None], object]) -> None:
        """Call it with None at its turn."""
        self._queue.append(function)
        if not self._armed:
            self._arm()

    def _arm(self) -> None:
        self._armed = True
        self._armed_ns = time.monotonic_ns()
        self._timer.start(self._release)

    def _release(self) -> None:
        # Called by the loop, in gevent's hub: `switch` returns when the greenlet waits again.
        self._armed_ns = time.monotonic_ns()
        queue = self._queue
        while queue:
            queue.popleft()(None)
            if time.monotonic_ns() - self._armed_ns > BUDGET_NS:
                break
        self._timer.stop()
        self._armed = False
        if queue:
            self._arm()
