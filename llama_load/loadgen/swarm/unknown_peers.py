"""Connections to the master's port that have not said who they are: a bound on their number, and on
how long they may be silent.

ZeroMQ has no such limits beyond its handshake, and accepts until no file descriptor is left. A
worker names itself in its first message, right after the handshake.
"""

from __future__ import annotations

import socket
import time
from contextlib import suppress

from llama_load.loadgen.wire.limits import open_files

NAMED_WITHIN_S = 10.0
# The page and the metrics have another eighth (`llama_load.page.bounded_server`).
SHARE = 8


class UnknownPeers:
    """Of one port. Connections are known by their file descriptors, which ZeroMQ owns."""

    def __init__(self) -> None:
        self.port = 0
        self._since_s: dict[int, float] = {}  # the oldest first

    def accepted(self, connection: int, known: int, *, is_open: bool) -> None:
        """A new one. Ends the oldest where there are too many, and those that were silent for too
        long. `is_open`: there is no swarm key, so that the `known` ones may be strangers, too: a
        quarter of all descriptors is for them."""
        now_s = time.monotonic()
        self.forget(connection)
        self._since_s[connection] = now_s
        most = max(1, open_files() // SHARE)
        if is_open and known >= 2 * most:
            self.forget(connection)
            self._end(connection)
        while self._since_s:
            oldest, since_s = next(iter(self._since_s.items()))
            if len(self._since_s) <= most and now_s - since_s < NAMED_WITHIN_S:
                return
            self.forget(oldest)
            self._end(oldest)

    def forget(self, connection: int) -> None:
        """It has a name now, or is closed."""
        self._since_s.pop(connection, None)

    def _end(self, connection: int) -> None:
        """ZeroMQ sees its end, and closes it. The descriptor may be another connection's by now:
        only one of this port is ended."""
        with suppress(OSError):
            ended = socket.socket(fileno=connection)
            try:
                if ended.getsockname()[1] == self.port:
                    ended.shutdown(socket.SHUT_RDWR)
            finally:
                ended.detach()
