"""A verdict's checks, arranged by the six statements that make a run valid (see `metrics.verdict_words.STATEMENTS`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llama_load.metrics.check import Check
from llama_load.metrics.verdict_words import STATEMENTS

HOLDS, FAILS, UNKNOWN = MARKS = ("✓", "✗", "?")


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
        return {True: HOLDS, False: FAILS, None: UNKNOWN}[self.ok]

    @property
    def missing(self) -> list[str]:
        """Which evidence is missing: the sentences of its checks without a value."""
        return [check.text for check in self.checks if check.value is None]


def mark(check: Check) -> str:
    """✓ passed, ✗ failed, ? without evidence; a space for information."""
    return " " if check.limit is None else UNKNOWN if check.value is None else HOLDS if check.ok else FAILS


def limit_text(check: Check) -> str:
    """A check's limit: `0.01`; empty for information."""
    return "" if check.limit is None else f"{check.limit:.4g}"


def arranged(checks: Sequence[Check]) -> list[Statement]:
    """The six statements in their order, each with its checks. Information belongs to none (see `remarks`)."""
    statements = []
    for name, text in STATEMENTS.items():
        own = sorted((check for check in checks if check.statement == name), key=lambda check: MARKS.index(mark(check)) != 1)
        statements.append(Statement(name, text, own))
    return statements


def remarks(checks: Sequence[Check]) -> list[Check]:
    """Information: the lines without a limit."""
    return [check for check in checks if check.limit is None]
