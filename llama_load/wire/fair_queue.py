"""Lets greenlets go on a few at a time, so that reading sockets comes in between.

When 400 streams end in the same moment, 400 users want to write down their record and send the next request: 0.3 s of
work in one piece, in which the tokens of all other streams pile up and can no longer be told apart. gevent would run
all of them before it looks at a socket again. Here each turn of the event loop lets them work for a few ms.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from gevent.hub import Waiter

# A third of the shortest gap between tokens that is read in batches at all (see `llama_load.wire.transport`).
BUDGET_NS = 1_000_000


class FairQueue:
    """A queue of waiting greenlets. First come, first served."""

    def __init__(self, loop: Any) -> None:
        self._queue: deque[Waiter] = deque()
        self._timer = loop.timer(0)
        self._armed = False

    def wait(self) -> None:
        """Wait for a turn; at once if nobody else is waiting."""
        if self._queue:
            waiter = Waiter()
            self.wake(waiter)
            waiter.get()

    def wake(self, waiter: Waiter) -> None:
        """Let the greenlet that waits on `waiter` (or will) go on when it is its turn."""
        self._queue.append(waiter)
        if not self._armed:
            self._armed = True
            self._timer.start(self._release)

    def _release(self) -> None:
        # Called by the loop, in gevent's hub: a switch comes back when the greenlet waits for something again.
        started = time.monotonic_ns()
        queue = self._queue
        while queue:
            queue.popleft().switch(None)
            if time.monotonic_ns() - started > BUDGET_NS:
                break
        self._timer.stop()
        if queue:
            self._timer.start(self._release)
        else:
            self._armed = False
