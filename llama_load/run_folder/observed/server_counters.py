"""A server's counters: prompt cache, speculative decoding, finished requests. They include all its
clients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, fields

from llama_load.run_folder.observed.speculation import Speculation

# A restarted process has another start time. Prometheus clients report it to a few ms.
SAME_START_S = 0.5
# Among the changes of a server, where its counters began again at 0.
RESTARTED = "restarted while requests were measured: its counters were reset"


@dataclass(frozen=True, slots=True)
class ServerTimes:
    """The sums of a server's histograms of its requests' times, ms: of all its clients together, no
    single request."""

    requests: int  # that they cover
    ttft_ms: float  # from arrival
    e2el_ms: float  # from arrival
    queue_ms: float
    prefill_ms: float
    decode_ms: float

    def combined(self, other: ServerTimes, sign: int) -> ServerTimes:
        """The sum of both; with `sign` -1 the increase since `other`."""
        ours = astuple(self)
        theirs = astuple(other)
        sums = []
        for one, two in zip(ours, theirs, strict=True):
            sums.append(one + sign * two)
        return ServerTimes(*sums)


@dataclass(frozen=True, slots=True)
class ServerCounters:
    """Counts since the server's start, or over an interval; None where it does not count it.
    Instants: Unix time of its clock."""

    speculation: Speculation | None = None
    prompt_tokens: int | None = None  # cached ones included
    # prompt tokens looked up in the prompt cache (vLLM: 0 without prefix caching)
    cache_queries: int | None = None
    cache_hits: int | None = None  # those found there
    requests: int | None = None
    preemptions: int | None = None
    started_s: float | None = None  # when the process started
    read_s: float | None = None  # when the counters were read
    output_tokens: int | None = None  # of answers that ended
    times: ServerTimes | None = None
    # ±, of counts that are printed rounded (llama-server: six digits)
    errors: Mapping[str, float] = field(default_factory=dict)
    # of the hits, those in a cache outside of the engine, such as LMCache
    external_hits: int | None = None

    def error(self, name: str) -> int:
        """The largest error of a count, ±."""
        return math.ceil(self.errors.get(name, 0.0))

    @property
    def uptime_s(self) -> float | None:
        """How long the server had been running; None where it does not report its start."""
        if self.started_s is None or self.read_s is None:
            return None
        return max(0.0, self.read_s - self.started_s)

    def plus(self, other: ServerCounters) -> ServerCounters:
        """The sum of both (two replicas, two stages); None where one of them does not count it."""
        return self._combined(other, 1)

    def since(self, earlier: ServerCounters) -> ServerCounters | None:
        """The increase since `earlier`; None if the server was restarted in between."""
        if self.is_restart_of(earlier):
            return None
        return self._combined(earlier, -1)

    def is_restart_of(self, earlier: ServerCounters) -> bool:
        """Whether the server was restarted since `earlier`: by its start time, else because a
        counter has shrunk."""
        if self.started_s is not None and earlier.started_s is not None:
            return abs(self.started_s - earlier.started_s) > SAME_START_S
        if (
            self.speculation is not None
            and earlier.speculation is not None
            and self.speculation.since(earlier.speculation) is None
        ):
            return True

        grown = self._counts(earlier, -1).values()
        return any(count is not None and count < 0 for count in grown)

    def _combined(self, other: ServerCounters, sign: int) -> ServerCounters:
        """The sum; with `sign` -1 the difference. Errors add up in both."""
        drafted = None
        if self.speculation is not None and other.speculation is not None:
            if sign > 0:
                drafted = self.speculation.plus(other.speculation)
            else:
                drafted = self.speculation.since(other.speculation)

        times = None
        if self.times is not None and other.times is not None:
            times = self.times.combined(other.times, sign)

        errors = dict(self.errors)
        for name, error in other.errors.items():
            errors[name] = errors.get(name, 0.0) + error
        return ServerCounters(
            drafted, **self._counts(other, sign), times=times, errors=errors
        )

    def _counts(self, other: ServerCounters, sign: int) -> dict[str, int | None]:
        counts: dict[str, int | None] = {}
        for name in _COUNTS:
            one = getattr(self, name)
            two = getattr(other, name)
            is_known = one is not None and two is not None
            counts[name] = one + sign * two if is_known else None
        return counts


_OTHERS = ("speculation", "started_s", "read_s", "times", "errors")
_COUNTS = tuple(
    item.name for item in fields(ServerCounters) if item.name not in _OTHERS
)
