"""One budget for all runs of others that a command reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from llama_load.ground.errors import UsageError
from llama_load.outside.budget import (
    MOST_DECODED_BYTES,
    MOST_KEPT_BYTES,
    CommandBudget,
    TooMuchWork,
    one_budget,
)


@contextmanager
def budget_of_command() -> Iterator[None]:
    """Raises UsageError if it was spent."""
    try:
        with one_budget(CommandBudget(MOST_DECODED_BYTES, MOST_KEPT_BYTES)):
            yield
    except TooMuchWork as error:
        raise UsageError(str(error)) from None
