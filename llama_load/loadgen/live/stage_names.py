"""Names of stages."""

from __future__ import annotations

from collections.abc import Sequence


def stage_name(stages: Sequence[str], number: int) -> str:
    """The name of a stage; empty in a run without stages."""
    if 0 <= number < len(stages):
        return stages[number]
    return ""
