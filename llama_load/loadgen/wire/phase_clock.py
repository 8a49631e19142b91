"""The phases of an exchange: waiting for progress, streaming, done."""

from __future__ import annotations

from dataclasses import dataclass

from llama_load.loadgen.wire.request import Timeouts

WAITING, STREAMING, DONE = range(3)
# How long to wait for the end of the answer after its final event.
LINGER_S = 1.0


@dataclass(slots=True)
class PhaseClock:
    """The phase of an exchange, its beginning, and the timeouts of all phases."""

    timeouts: Timeouts
    phase: int = WAITING
    since_ns: int = 0

    def limit_s(self, *, is_opening: bool, is_complete: bool) -> float | None:
        """The timeout of the phase, s; None without limit. `is_complete`: the final event has
        arrived."""
        if self.phase == STREAMING:
            return LINGER_S if is_complete else self.timeouts.token_s
        return self.timeouts.connect_s if is_opening else self.timeouts.first_token_s

    def is_request_overdue(self, at: int, started_ns: int) -> bool:
        """Whether a request that started then has exceeded the timeout of the whole request at
        `at`."""
        limit_s = self.timeouts.request_s
        return (
            limit_s is not None and started_ns > 0 and at - started_ns > limit_s * 1e9
        )
