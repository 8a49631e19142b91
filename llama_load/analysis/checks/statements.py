"""A verdict's checks, arranged by the six statements that make a run valid (see
`run_folder.vocabulary.verdict_words.STATEMENTS`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llama_load.analysis.figures.check import NOT_PASSED, PASSED, UNKNOWN, Check
from llama_load.run_folder.vocabulary.verdict_words import STATEMENTS


@dataclass(frozen=True, slots=True)
class Statement:
    """One of the six statements: its name, its sentence, and its checks: those that failed, those
    that are unknown, those that passed."""

    name: str
    text: str
    checks: Sequence[Check]

    @property
    def ok(self) -> bool | None:
        """False where a check failed; None where a main check is unknown, or nothing was seen; else
        True."""
        if any(not check.ok for check in self.checks):
            return False
        is_seen = any(check.is_known for check in self.checks)
        return True if is_seen and not self.open_questions else None

    @property
    def mark(self) -> str:
        """✓, ✗ or ?."""
        return {True: PASSED, False: NOT_PASSED, None: UNKNOWN}[self.ok]

    @property
    def title(self) -> str:
        """Its name; where it is not known, it says so in front of its sentence, which reads like a
        claim."""
        return self.name if self.ok is not None else f"{self.name} (not known)"

    @property
    def open_questions(self) -> list[Check]:
        """Its main checks that are unknown."""
        return [
            check
            for check in self.checks
            if check.is_main and check.ok and not check.is_known
        ]

    @property
    def missing(self) -> list[str]:
        """Which evidence is missing: the sentences of its checks that are unknown."""
        return [check.text for check in self.checks if check.ok and not check.is_known]


def arranged(checks: Sequence[Check]) -> list[Statement]:
    """The six statements in their order, each with its checks. Information belongs to none (see
    `remarks`)."""
    statements = []
    for name, text in STATEMENTS.items():
        own = [check for check in checks if check.statement == name]
        own.sort(key=lambda check: (check.ok, check.is_known))
        statements.append(Statement(name, text, own))
    return statements


def remarks(checks: Sequence[Check]) -> list[Check]:
    """Information: the lines without a limit."""
    return [check for check in checks if check.limit is None]
