"""What a server looked like after its users hung up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeingTimes:
    """How soon a server stopped working on requests whose users hung up, see `metrics.freeing_times`.

    `freed`: how many were seen free; `median_ms`, `p99_ms` (None below 100) and `longest_ms`: how long after their users hung up,
    an upper bound; `resolution_ms`: the median time by which they may have been free earlier. `late`: those that took over 10 s.
    `unknown`: those for which no count of the server tells it within a second. `stuck`: those still at work at the last look, the
    longest for `stuck_ms`. `most_at_work`: the most that were surely at work at a time. `looks`: how often the server was asked,
    and `look_ms`: the median time of an answer.
    """

    freed: int = 0
    median_ms: float | None = None
    p99_ms: float | None = None
    longest_ms: float | None = None
    resolution_ms: float | None = None
    late: int = 0
    unknown: int = 0
    stuck: int = 0
    stuck_ms: float | None = None
    most_at_work: int = 0
    looks: int = 0
    look_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HangUpCheck:
    """A server after the run: `host`, its URL.

    `busy`: requests that it still worked on (running and waiting ones, or busy slots) when the check ended, although none was in
    flight; None: it does not report them. `waited_ms`: the length of the check, which begins when the last request has ended.
    `idle_after_ms`: when it was first seen idle in it; None: not within it. `freeing`: while the run went on. `healthy`: whether it
    still answered /health.
    """

    host: str
    busy: int | None = None
    waited_ms: float = 0.0
    idle_after_ms: float | None = None
    freeing: FreeingTimes | None = None
    healthy: bool | None = None
