"""How long to wait for one's own work: until it stops making progress, counted in turns of the
event loop and not in time.

A limit in seconds expires while the process stands still (stopped, starved of CPU), and nothing was
waited for: the last requests of 16 % of a run vanished so. In a turn of the event loop everyone who
is ready has run once, however long that took.
"""

from __future__ import annotations

from collections.abc import Callable

import gevent

# 200 turns take 2 s on a process that has its CPU time.
TURN_S = 0.01
TURNS = 200


def wait_until_none(
    left: Callable[[], int],
    turns: int = TURNS,
    sleep: Callable[[float], object] = gevent.sleep,
) -> int:
    """Wait until `left()` is 0, or has not become smaller in that many turns. Returns what is
    left."""
    least = left()
    patience = turns
    while least and patience:
        sleep(TURN_S)
        patience -= 1
        now = left()
        if now < least:
            least = now
            patience = turns
    return left()
