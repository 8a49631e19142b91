"""Prompts that earlier runs sent to the same server."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class SentBefore:
    """Measured prompts (first turns) that were sent to the same server in earlier runs."""

    count: int = 0
    of: int = 0  # all first turns
    runs: list[str] = field(default_factory=list)  # the folder names of these runs
    prompts: list[int] = field(
        default_factory=list
    )  # the first such prompts, by prompt_index
