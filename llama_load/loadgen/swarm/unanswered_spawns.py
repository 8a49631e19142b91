"""Locust's messages that start users, until their workers have answered.

Locust sends each once. A worker that a half-open connection hides for less than 30 s is not lost,
but such a message to it may be: its users would be missing for the rest of the run, and a run
without any other users would not end. So it is sent again. A worker that has it already ignores it,
because it is not newer, and answers all the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from locust.rpc import Message

# A worker answers before it starts its users.
ANSWERED_WITHIN_S = 5.0
SPAWN = "spawn"
SPAWNING = "spawning"
# They end what the message before them has started.
ENDING = ("stop", "quit")


@dataclass(slots=True)
class _Unanswered:
    """The newest such message to a worker, when it was sent, and how many have no answer."""

    message: Message
    sent_s: float
    count: int


class UnansweredSpawns:
    """See above. Of each worker the newest one: it has the number of all its users."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._of_worker: dict[str, _Unanswered] = {}

    def sent(self, message: Message) -> None:
        """A message to a worker is on its way."""
        worker = message.node_id
        if message.type in ENDING:
            self._of_worker.pop(worker, None)
        elif message.type == SPAWN:
            before = self._of_worker.get(worker)
            count = 1 if before is None else before.count + 1
            self._of_worker[worker] = _Unanswered(message, self._now_s(), count)

    def received(self, message: Message) -> None:
        """A message of a worker has come."""
        if message.type != SPAWNING:
            return
        unanswered = self._of_worker.get(message.node_id)
        if unanswered is None:
            return
        unanswered.count -= 1
        if unanswered.count == 0:
            del self._of_worker[message.node_id]

    def overdue(self, is_there: Callable[[str], bool]) -> list[Message]:
        """What to send again now. A worker that is not there gets another one when it is back."""
        now_s = self._now_s()
        again = []
        for worker, unanswered in list(self._of_worker.items()):
            if not is_there(worker):
                del self._of_worker[worker]
            elif now_s - unanswered.sent_s > ANSWERED_WITHIN_S:
                unanswered.count = 0  # `sent` counts it
                again.append(unanswered.message)
        return again
