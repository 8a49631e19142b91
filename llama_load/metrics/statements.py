"""A verdict's checks, arranged by the six statements that make a run valid (see `metrics.verdict_words.STATEMENTS`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llama_load.metrics.check import Check
from llama_load.metrics.verdict_words import STATEMENTS


@dataclass(frozen=True, slots=True)
class Statement:
    """One of the six statements: its name, its sentence, and its checks; those that are not ok come first, then the passed ones."""

    name: str
    text: str
    checks: Sequence[Check]

    @property
    def ok(self) -> bool | None:
        """False where a check failed; None where no check had any evidence; else True."""
        if any(not check.ok for check in self.checks):
            return False
        return True if any(check.value is not None for check in self.checks) else None

    @property
    def mark(self) -> str:
        """✓, ✗ or ?."""
        return {True: "✓", False: "✗", None: "?"}[self.ok]

    @property
    def missing(self) -> list[str]:
        """Which evidence is missing: the sentences of its checks without a value."""
        return [check.text for check in self.checks if check.value is None]


def arranged(checks: Sequence[Check]) -> list[Statement]:
    """The six statements in their order, each with its checks. Information belongs to none (see `remarks`)."""
    return [
        Statement(name, text, sorted((check for check in checks if check.statement == name), key=lambda check: check.ok))
        for name, text in STATEMENTS.items()
    ]


def remarks(checks: Sequence[Check]) -> list[Check]:
    """Information: the lines without a limit."""
    return [check for check in checks if check.limit is None]
