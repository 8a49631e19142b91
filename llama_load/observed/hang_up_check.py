"""What a server looked like after its users hung up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HangUpCheck:
    """A server after the run: `host`, its URL.

    `busy`: requests that it still worked on (slots, or running and waiting requests) when the check ended, although none was in
    flight; None: it does not report them. `idle_after_ms`: when it was first seen idle, after the last request had ended; None: not
    within the time of the check. `orphans`: most requests seen at work beyond those in flight while the run went on, and
    `freed_within_ms`: how long the longest such excess lasted. `healthy`: whether it still answered /health.
    """

    host: str
    busy: int | None = None
    idle_after_ms: float | None = None
    orphans: int | None = None
    freed_within_ms: float | None = None
    healthy: bool | None = None
