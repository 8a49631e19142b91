"""What a server looked like after its users hung up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeingTimes:
    """How soon a server stopped working on requests whose users hung up, see
    `run_folder.arithmetic.freeing_times`."""

    freed: int = 0  # how many were seen free
    median_ms: float | None = None  # after their users hung up, an upper bound
    p99_ms: float | None = None  # None below 100
    longest_ms: float | None = None
    # the median time by which they may have been free earlier
    resolution_ms: float | None = None
    late: int = 0  # those that took over 10 s
    unknown: int = 0  # those for which no count of the server tells it within a second
    stuck: int = 0  # those still at work at the last look
    stuck_ms: float | None = None  # the longest of these
    most_at_work: int = 0  # the most that were surely at work at a time
    looks: int = 0  # how often the server was asked
    look_ms: float | None = None  # the median time of an answer


@dataclass(frozen=True, slots=True, kw_only=True)
class HangUpCheck:
    """A server after the run. The check begins when the last request has ended."""

    host: str  # its URL
    # requests that it still worked on when the check ended, running and waiting; None: not reported
    busy: int | None = None
    waited_ms: float = 0.0  # the length of the check
    # when it was first seen idle; None: not within the check
    idle_after_ms: float | None = None
    freeing: FreeingTimes | None = None  # while the run went on
    healthy: bool | None = None  # whether it still answered /health
