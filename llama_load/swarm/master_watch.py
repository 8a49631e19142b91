"""A worker's look at its master: one whose process has ended, or whose connection has been closed for a while, does not come back.

A master that is only silent does: it may have been stopped, or cut off by the network, which closes no connection. For that there
are Locust's heartbeats (60 s).
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
# A connection that broke is made again at once, and then every 0.1 s; a master that is started again needs some seconds.
CLOSED_FOR_S = 15.0


class MasterWatch:
    """`gone` is called once, with a sentence, when the master is certain not to come back."""

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
        """The master has said which process it is."""
        self._process = introduced(introduction)

    def look(self) -> bool:
        """Whether it is gone, by what can be seen now."""
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
