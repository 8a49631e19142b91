"""A server's counters: prompt cache, speculative decoding, finished requests. They include all its clients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, fields

from llama_load.observed.speculation import Speculation

# A restarted process has another start time. Prometheus clients report it to a few ms.
SAME_START_S = 0.5


@dataclass(frozen=True, slots=True)
class ServerTimes:
    """The sums of a server's histograms of its requests' times, ms, and how many requests they cover: from arrival to the first
    token and to the end, in its queue, for the prompt, for the answer. Coarse: all clients together, no single request."""

    requests: int
    ttft_ms: float
    e2el_ms: float
    queue_ms: float
    prefill_ms: float
    decode_ms: float

    def combined(self, other: ServerTimes, sign: int = 1) -> ServerTimes:
        """The sum of both; with `sign` -1 the increase since `other`."""
        ours, theirs = astuple(self), astuple(other)
        return ServerTimes(*(one + sign * two for one, two in zip(ours, theirs, strict=True)))


@dataclass(frozen=True, slots=True)
class ServerCounters:
    """Counts since the server's start, or over an interval; None where the server does not count it.

    `prompt_tokens` includes cached ones. `cache_queries` of them were looked up in the prompt cache and `cache_hits` found
    (vLLM: prefix_cache_queries and prefix_cache_hits, 0 without prefix caching; llama-server looks up all). `external_hits` of
    them came from a cache outside of the engine, such as LMCache. `started_s`: when
    the process started; `read_s`: when the counters were read; both in Unix time of the server's clock. `errors`: by how much a
    count may be wrong because the server printed it rounded (llama-server: six digits); absent: exact.
    """

    speculation: Speculation | None = None
    prompt_tokens: int | None = None
    cache_queries: int | None = None
    cache_hits: int | None = None
    requests: int | None = None
    preemptions: int | None = None
    started_s: float | None = None
    read_s: float | None = None
    output_tokens: int | None = None  # of answers that ended
    times: ServerTimes | None = None
    errors: Mapping[str, float] = field(default_factory=dict)
    external_hits: int | None = None

    def error(self, name: str) -> int:
        """The largest error of a count, ±."""
        return math.ceil(self.errors.get(name, 0.0))

    @property
    def uptime_s(self) -> float | None:
        """How long the server had been running; None where it does not report its start."""
        return None if self.started_s is None or self.read_s is None else max(0.0, self.read_s - self.started_s)

    def plus(self, other: ServerCounters) -> ServerCounters:
        """The sum of both (two replicas, two stages); None where one of them does not count it."""
        together = None
        if self.speculation is not None and other.speculation is not None:
            together = self.speculation.plus(other.speculation)
        times = None if self.times is None or other.times is None else self.times.combined(other.times)
        counts = {name: _sum(getattr(self, name), getattr(other, name)) for name in _COUNTS}
        return ServerCounters(together, **counts, times=times, errors=self._errors(other))

    def since(self, earlier: ServerCounters) -> ServerCounters | None:
        """The increase since `earlier`; None if the server was restarted in between."""
        if self.is_restart_of(earlier):
            return None
        drafted = None
        if self.speculation is not None and earlier.speculation is not None:
            drafted = self.speculation.since(earlier.speculation)
        times = None if self.times is None or earlier.times is None else self.times.combined(earlier.times, -1)
        counts = {name: _sum(getattr(self, name), getattr(earlier, name), -1) for name in _COUNTS}
        return ServerCounters(drafted, **counts, times=times, errors=self._errors(earlier))

    def _errors(self, other: ServerCounters) -> dict[str, float]:
        """The errors of a sum or difference: both add up."""
        return {name: self.errors.get(name, 0.0) + other.errors.get(name, 0.0) for name in {*self.errors, *other.errors}}

    def is_restart_of(self, earlier: ServerCounters) -> bool:
        """Whether the server was restarted since `earlier`: by its start time, else because a counter has shrunk."""
        if self.started_s is not None and earlier.started_s is not None:
            return abs(self.started_s - earlier.started_s) > SAME_START_S
        grown = [_sum(getattr(self, name), getattr(earlier, name), -1) for name in _COUNTS]
        if self.speculation is not None and earlier.speculation is not None and self.speculation.since(earlier.speculation) is None:
            return True
        return any(count is not None and count < 0 for count in grown)


_OTHERS = ("speculation", "started_s", "read_s", "times", "errors")
_COUNTS = tuple(item.name for item in fields(ServerCounters) if item.name not in _OTHERS)


def _sum(one: int | None, other: int | None, sign: int = 1) -> int | None:
    return None if one is None or other is None else one + sign * other
