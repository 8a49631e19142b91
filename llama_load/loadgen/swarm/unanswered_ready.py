"""Locust's message that a worker is ready, until the master has answered.

Locust repeats it when a worker starts, but after the end of a run it sends it once. The message
before it has told the master that the worker has stopped, and to forget it. A connection that
closes between the two takes the second one with it: the worker would get no users any more, and no
answers to its heartbeats, so that it would end after a minute. So the message is sent again. A
master that has it already answers all the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from locust.rpc import Message

# A master answers at once.
ANSWERED_WITHIN_S = 5.0
READY = "client_ready"
# Whoever starts users here knows this worker.
ANSWERS = ("ack", "spawn")
# The worker is not ready any more. (After a stop it says when it is again.)
ENDING = ("client_stopped", "quit")


class UnansweredReady:
    """See above: that of one worker."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._message: Message | None = None
        self._sent_s = 0.0

    def sent(self, message: Message) -> None:
        """A message to the master is on its way."""
        if message.type == READY:
            self._message = message
            self._sent_s = self._now_s()
        elif message.type in ENDING:
            self._message = None

    def received(self, message: Message) -> None:
        """A message of the master has come."""
        if message.type in ANSWERS:
            self._message = None

    def overdue(self) -> Message | None:
        """What to send again now, if anything. To be asked before each heartbeat."""
        is_overdue = self._now_s() - self._sent_s > ANSWERED_WITHIN_S
        return self._message if is_overdue else None
