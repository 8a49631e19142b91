"""Prompts that earlier runs sent to the same server."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class SentBefore:
    """Measured prompts (first turns) that were sent to the same server in earlier runs: `count` of `of`, the folder names of these
    runs, and the first such prompts by prompt_index."""

    count: int = 0
    of: int = 0
    runs: list[str] = field(default_factory=list)
    prompts: list[int] = field(default_factory=list)
