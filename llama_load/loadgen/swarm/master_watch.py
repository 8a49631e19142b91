"""How a worker detects that its master is gone: the process has ended, or nothing listens on its
port for some time.

A silent master is not gone: it may have been suspended or cut off by the network. Locust's
heartbeats (60 s) cover that case.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gevent
import psutil
from gevent import socket

from llama_load.loadgen.swarm.presence import introduced, is_over

LOOK_EVERY_S = 0.5
# ZeroMQ reconnects at once, then every 0.1 s. A restarted master needs some seconds, a closed port
# as long as its person.
CLOSED_FOR_S = 30.0
ANSWER_WITHIN_S = 2.0


class MasterWatch:
    """`gone` is called once, with a sentence, when the master will not come back."""

    def __init__(self, runner: Any, gone: Callable[[str], None]) -> None:
        self._runner = runner
        self._gone = gone
        self.is_gone = False
        self._process: psutil.Process | None = None
        gevent.spawn(self._watch)

    def introduce(self, introduction: dict[str, Any]) -> None:
        """Take the master's `introduction`: which process it is."""
        self._process = introduced(introduction)

    def look(self) -> bool:
        """Check now; whether the master is gone."""
        if self._process is not None and is_over(self._process):
            self.is_gone = True
        closed_since_s = self._runner.client.closed_since_s
        if (
            closed_since_s is not None
            and time.monotonic() - closed_since_s > CLOSED_FOR_S
            and self._is_refused()
        ):
            self.is_gone = True
        return self.is_gone

    def _watch(self) -> None:
        while not self.look():
            gevent.sleep(LOOK_EVERY_S)
        self._gone("the master is gone; this worker ends")

    def _is_refused(self) -> bool:
        """Whether the master's machine answers that nothing listens on its port."""
        try:
            socket.create_connection(
                (self._runner.master_host, self._runner.master_port), ANSWER_WITHIN_S
            ).close()
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
        return False
