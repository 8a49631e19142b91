"""The phases of an exchange: waiting for progress, streaming, done."""

from __future__ import annotations

from dataclasses import dataclass

from llama_load.wire.request import Timeouts

WAITING, STREAMING, DONE = range(3)


@dataclass(slots=True)
class PhaseClock:
    """The phase of an exchange, its beginning, and the timeouts of all phases."""

    timeouts: Timeouts
    phase: int = WAITING
    since_ns: int = 0
