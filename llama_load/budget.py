"""A budget of steps for work on data of others, whose size does not bound the work: references that
repeat, rules that multiply."""

from __future__ import annotations

from dataclasses import dataclass


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
