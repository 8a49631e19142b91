"""Budgets for work on data of others.

Of steps, where its size does not bound the work: references that repeat, rules that multiply. Of
bytes, where a command reads many files: each of them has limits, a thousand of them together none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

# Of all runs that a command reads: what is decoded, at 100 MB/s or more, and what stays in memory.
MOST_DECODED_BYTES = 64 << 30
MOST_KEPT_BYTES = 4 << 30


class TooMuchWork(ValueError):
    """The data of others would take more steps than the budget has."""


@dataclass(slots=True)
class Budget:
    """Steps that are left. What walks over foreign data takes one, and spends on it before each
    piece of work."""

    left: int

    def spend(self, steps: int = 1) -> None:
        """Raises TooMuchWork if fewer are left."""
        self.left -= steps
        if self.left < 0:
            raise TooMuchWork("it takes too many steps")


@dataclass(slots=True)
class CommandBudget:
    """Bytes that a command has left for all files that it reads."""

    decoded_left: int = MOST_DECODED_BYTES
    kept_left: int = MOST_KEPT_BYTES

    @property
    def is_spent(self) -> bool:
        """Whether it would have taken more."""
        return self.decoded_left < 0 or self.kept_left < 0


_of_command: ContextVar[CommandBudget | None] = ContextVar("of_command", default=None)


@contextmanager
def one_budget(budget: CommandBudget, *, ends: bool = True) -> Iterator[None]:
    """All files of others that are read inside have this budget.

    `ends`: raises TooMuchWork in the end if it was spent, also where a reader took the refusal for
    a damaged file.
    """
    decoded_gib = budget.decoded_left / 2**30
    kept_gib = budget.kept_left / 2**30
    outer = _of_command.set(budget)
    try:
        yield
    except Exception:
        if not (ends and budget.is_spent):
            raise
    finally:
        _of_command.reset(outer)
    if ends and budget.is_spent:
        raise TooMuchWork(
            f"these runs together have more than {decoded_gib:g} GiB to decode, or "
            f"{kept_gib:g} GiB to keep in memory; name fewer of them"
        )


def spend_bytes(*, decoded: int = 0, kept: int = 0) -> None:
    """Take it from the budget of the command, if it has one. Raises TooMuchWork if none is left."""
    budget = _of_command.get()
    if budget is None:
        return
    budget.decoded_left -= decoded
    budget.kept_left -= kept
    if budget.is_spent:
        raise TooMuchWork("the files before it have spent the budget of this command")


def has_one_budget() -> bool:
    """Whether what is read now is counted."""
    return _of_command.get() is not None
