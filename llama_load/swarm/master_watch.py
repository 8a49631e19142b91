"""How a worker detects that its master is gone: the process has ended, or the connection has been closed for some time.

A silent master is not gone: it may have been suspended or cut off by the network, which closes no connection. Locust's heartbeats
(60 s) cover that case.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gevent
import psutil
import zmq
from zmq.utils.monitor import recv_monitor_message

from llama_load.swarm.presence import introduced, is_over

LOOK_EVERY_S = 0.5
# ZeroMQ reconnects at once, then every 0.1 s; a restarted master needs some seconds.
CLOSED_FOR_S = 15.0


class MasterWatch:
    """`gone` is called once, with a sentence, when the master will not come back."""

    def __init__(self, runner: Any, gone: Callable[[str], None]) -> None:
        self._runner = runner
        self._gone = gone
        self.is_gone = False
        self._process: psutil.Process | None = None
        self._client: Any = None
        self._monitor: Any = None
        self._closed_since_s: float | None = None
        gevent.spawn(self._watch)

    def introduce(self, introduction: dict[str, Any]) -> None:
        """Take the master's `introduction`: which process it is."""
        self._process = introduced(introduction)

    def look(self) -> bool:
        """Check now; whether the master is gone."""
        if self._process is not None and is_over(self._process):
            self.is_gone = True
        self._hear_of_connections()
        if self._closed_since_s is not None and time.monotonic() - self._closed_since_s > CLOSED_FOR_S:
            self.is_gone = True
        return self.is_gone

    def _watch(self) -> None:
        while not self.look():
            gevent.sleep(LOOK_EVERY_S)
        self._gone("the master is gone; this worker ends")

    def _hear_of_connections(self) -> None:
        if self._client is not self._runner.client:  # Locust has made a new one
            self._client, self._closed_since_s = self._runner.client, None
            self._monitor = self._client.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED)
        try:
            while True:
                event = recv_monitor_message(self._monitor, zmq.NOBLOCK)["event"]
                self._closed_since_s = time.monotonic() if event == zmq.EVENT_DISCONNECTED else None
        except zmq.ZMQError:  # no more events
            return
