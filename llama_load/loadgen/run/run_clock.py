"""The time of a run's core, and how its parts run beside each other: gevent's, or those of a test
without any waiting."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import gevent

from llama_load.ground.units import NS_PER_S


class Task(Protocol):
    """A function that runs beside others."""

    def kill(self, *, block: bool) -> object:
        """End it at its next wait."""


@dataclass(frozen=True, slots=True)
class RunClock:
    """`now_ns` is a monotonic clock, ns; `sleep` takes seconds; `spawn` runs a function beside the
    others."""

    now_ns: Callable[[], int] = time.monotonic_ns
    sleep: Callable[[float], object] = gevent.sleep
    spawn: Callable[..., Task] = gevent.spawn

    @property
    def now_s(self) -> float:
        """The same clock in s."""
        return self.now_ns() / NS_PER_S
