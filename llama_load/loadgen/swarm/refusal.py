"""A master that refuses a worker: it has another swarm key, or one of them has none.

Only a person can mend that: the worker says it at once, and ends after it has waited as long as for
a silent master.
"""

from __future__ import annotations

import sys
import time

import zmq
from gevent import socket

from llama_load.ground.errors import UsageError
from llama_load.loadgen.swarm.presence import LOST_AFTER_S
from llama_load.loadgen.swarm.swarm_key import SAME_KEY

REFUSED_FOR_S = LOST_AFTER_S
FAILED = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
# A master with another key only closes the connection. So does a network that breaks, but not so
# often in a row.
CUT_OFF = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
MOST_CUT_OFF = 5
GREETS_WITHIN_S = 2.0
GREETING = b"\xff"  # a ZeroMQ peer's first byte, which it sends to everybody


class Refusal:
    """What a worker's first connection to its master shows. Once there was one, closed connections
    mean something else."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._cut_off = 0  # handshakes in a row that the master ended
        self._since_s: float | None = None

    def note(self, event: int) -> bool:
        """Take an event of the connection; whether the master refuses this worker."""
        if event & CUT_OFF:
            self._cut_off += 1
        is_refused = bool(event & FAILED) or self._cut_off >= MOST_CUT_OFF
        if is_refused and self._since_s is None:
            self._since_s = time.monotonic()
        return is_refused

    def forget(self) -> None:
        """There is a connection."""
        self._cut_off = 0
        self._since_s = None

    def end_if_final(self) -> None:
        """End this process if a master has refused it for `REFUSED_FOR_S`."""
        if (
            self._since_s is None
            or time.monotonic() - self._since_s < REFUSED_FOR_S
            or not self._is_master()
        ):
            return
        where = f"the master at {self._host}:{self._port}"
        print(
            f"llama-load: {where} has refused this worker for {REFUSED_FOR_S} s, so it ends: {SAME_KEY}",
            file=sys.stderr,
        )
        sys.exit(UsageError.exit_code)

    def _is_master(self) -> bool:
        """Whether a ZeroMQ socket listens there: a proxy whose master is not there yet closes
        connections, too."""
        try:
            with socket.create_connection(
                (self._host, self._port), GREETS_WITHIN_S
            ) as connection:
                return bytes(connection.recv(1)) == GREETING
        except OSError:
            return False
