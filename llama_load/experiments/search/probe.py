"""A probe: a load that was tried, and which of its requests met the objectives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from llama_load.errors import RunError

# Requests that follow each other resemble each other: a probe is resampled in this many batches.
BATCHES = 10
USERS, REQUESTS_PER_S = "users", "requests/s"


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What a probe at `level` (users, or requests/s) measured.

    `good`: whether each request met every objective, in order of start, without the first ones that met an idle server; a failed
    request did not. `by_objective`: the share that met each. `fault`: why the probe says nothing of the server's limit; empty if it
    does. `figures`: keys of summary.json, for the curve. `sent`: all requests of the probe.
    """

    level: float
    good: NDArray[np.bool_]
    sent: int
    fault: str = ""
    by_objective: Mapping[str, float] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    unit: str = USERS

    @property
    def share(self) -> float:
        """The share of requests that met every objective."""
        return float(self.good.mean()) if len(self.good) else 0.0

    @property
    def counts(self) -> bool:
        """Whether it may bound the capacity."""
        return not self.fault and len(self.good) > 0

    def batches(self) -> NDArray[np.int64]:
        """Requests and good requests of each of ten batches, in order: shape (10, 2)."""
        parts = np.array_split(self.good, min(BATCHES, len(self.good)))
        return np.array([(len(part), int(part.sum())) for part in parts], dtype=np.int64)


# level, requests to measure -> what was measured.
Probe = Callable[[float, int], ProbeResult]


class BudgetSpentError(RunError):
    """The next probe would exceed --max-time or --max-requests; the text says which."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """The answer of a search. `value` 0: no load met the objectives; None: nothing is known. `low` and `high` enclose it with 95 %
    confidence; an end is None where nothing bounds it. `why`: what ended the search before its time, or keeps an end open; `notes`:
    further sentences."""

    value: float | None
    low: float | None
    high: float | None
    probes: Sequence[ProbeResult]
    why: str = ""
    notes: Sequence[str] = ()

    @property
    def sent(self) -> int:
        """All requests of all probes."""
        return sum(probe.sent for probe in self.probes)
