"""The live figures of one group of requests: those of a workload, stage and host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from llama_load.ground.units import NS_PER_S
from llama_load.loadgen.live.sketch import BUCKETS, Integers, quantiles_ms
from llama_load.run_folder.arithmetic.percentiles import is_enough

# The latencies of each group: of a request, and its gaps.
OF_REQUEST = ("ttft", "tpot", "e2el")
LATENCIES = (*OF_REQUEST, "itl")
PERCENTILES = (50.0, 90.0, 99.0)


class GroupKey(NamedTuple):
    """What a request belongs to. `stage` is the stage's number."""

    workload: str
    stage: int
    host: str


OTHERS = GroupKey("(others)", 0, "(others)")


def _no_sketches() -> dict[str, Integers]:
    """An empty sketch of each latency."""
    return {name: np.zeros(BUCKETS, np.int64) for name in LATENCIES}


@dataclass(slots=True)
class Group:
    """The requests of one workload, stage and host, or of several added up.

    Instants are on the run's monotonic clock; `sums_ms` and `sketches` have the keys of
    `LATENCIES`.
    """

    completed: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    first_ns: int | None = None  # the first started
    last_ns: int | None = None  # the last ended
    sums_ms: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(LATENCIES, 0.0)
    )
    sketches: dict[str, Integers] = field(default_factory=_no_sketches)

    @property
    def failed(self) -> int:
        """How many requests failed."""
        return self.failures.total()

    @property
    def failure_ratio(self) -> float | None:
        """Failed requests of all that ended; None before the first."""
        ended = self.completed + self.failed
        if not ended:
            return None
        return self.failed / ended

    @property
    def seconds(self) -> float | None:
        """From the first request's start to the last one's end."""
        if self.first_ns is None or self.last_ns is None:
            return None
        return max(self.last_ns - self.first_ns, 1) / NS_PER_S

    @property
    def request_throughput(self) -> float | None:
        """Completed requests per second."""
        if not self.seconds:
            return None
        return self.completed / self.seconds

    @property
    def output_throughput(self) -> float | None:
        """Output tokens per second."""
        if not self.seconds:
            return None
        return self.output_tokens / self.seconds

    @property
    def tok_per_s_per_user(self) -> float | None:
        """Output tokens/s that one user sees: 1000 / mean TPOT in ms. Mean TPOT 20 ms: 50.0."""
        tpot_ms = self.mean_ms("tpot")
        if not tpot_ms:
            return None
        return 1000 / tpot_ms

    def count(self, latency: str) -> int:
        """The number of values of a latency."""
        return int(self.sketches[latency].sum())

    def mean_ms(self, latency: str) -> float | None:
        """The mean of a latency in ms, exact."""
        count = self.count(latency)
        if not count:
            return None
        return self.sums_ms[latency] / count

    def percentiles_ms(self, latency: str) -> list[float | None]:
        """`PERCENTILES` of a latency, off by less than 1 %; None with too few values (p99: 100)."""
        count = self.count(latency)
        quantiles = quantiles_ms(self.sketches[latency], PERCENTILES)
        for place, percentile in enumerate(PERCENTILES):
            if not is_enough(count, percentile):
                quantiles[place] = None
        return quantiles

    def add(self, other: Group) -> None:
        """Add another group's requests."""
        self.completed += other.completed
        self.failures += other.failures
        self.prompt_tokens += other.prompt_tokens
        self.cached_tokens += other.cached_tokens
        self.output_tokens += other.output_tokens
        if other.first_ns is not None and other.last_ns is not None:
            self.note_time(other.first_ns, other.last_ns)

        for name in LATENCIES:
            self.sums_ms[name] += other.sums_ms[name]
            self.sketches[name] += other.sketches[name]

    def note_time(self, first_ns: int, last_ns: int) -> None:
        """Requests began at the first of these instants, and ended at the last."""
        if self.first_ns is None or first_ns < self.first_ns:
            self.first_ns = first_ns
        if self.last_ns is None or last_ns > self.last_ns:
            self.last_ns = last_ns


def added(groups: Iterable[Group]) -> Group:
    """All groups in one."""
    total = Group()
    for group in groups:
        total.add(group)
    return total
