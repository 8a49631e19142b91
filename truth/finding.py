"""What a rule finds, and the levels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from truth.result import Doubt


class Level(IntEnum):
    """SILENT: the client reports none of it. WRONG: it is, and nothing says so. ADMITTED: it is
    wrong, but the client itself says that its figures cannot be used. RIGHT: it is, within the
    limits."""

    SILENT = 0
    WRONG = 1
    ADMITTED = 2
    RIGHT = 3

    @property
    def word(self) -> str:
        """As it stands in reports."""
        return self.name.lower()


LEVELS = {level.word: level for level in Level}


@dataclass(frozen=True, slots=True)
class Finding:
    """One figure: what is right, what the client has, how far it may be off. `values`: the numbers
    that stand in `seen`, in their order, where it has any, and `unit`
    what follows them. `repeats`: the values of each run. `holds`: whether a stated interval of 95 %
    holds what is right; None for other figures. `of_clock`: a client that waits for a core may
    have it wrong."""

    figure: str
    truth: str
    seen: str
    limit: str
    level: Level
    values: tuple[float, ...] = ()
    unit: str = ""
    repeats: tuple[tuple[float, ...], ...] = ()
    holds: bool | None = None
    of_clock: bool = False


def judged(right: bool, doubts: Sequence[Doubt]) -> Level:
    """Of a figure that the client reports."""
    if right:
        return Level.RIGHT
    if doubts:
        return Level.ADMITTED
    return Level.WRONG


def silent(figure: str, truth: str) -> Finding:
    """A figure that the client does not report."""
    return Finding(figure, truth, "", "", Level.SILENT)


def number(value: float | None) -> str:
    """With the digits that matter: 0.03, 1.2, 144. Empty without a value."""
    if value is None:
        return ""
    size = abs(value)
    if size < 1:
        return f"{value:.2f}"
    if size < 100:
        return f"{value:.1f}"
    return f"{value:,.0f}"
