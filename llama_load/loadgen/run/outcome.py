"""What the web page knows of runs: the state of the present one, how the last one ended."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

IDLE = "idle"
RUNNING = "running"
STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: its folder (None: it was refused), its exit code, and the sentence of an
    error if there was one."""

    folder: Path | None
    exit_code: int
    error: str | None = None
