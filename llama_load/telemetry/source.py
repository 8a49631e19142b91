"""What can be sampled."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import NamedTuple


class SourceError(Exception):
    """A source could not be sampled now; the message is a sentence for the report."""


class Value(NamedTuple):
    """One value. `labels`: pairs of name and value."""

    metric: str
    value: float
    labels: tuple[tuple[str, str], ...] = ()


class Source(ABC):
    """Something to sample. It is used by one thread."""

    name: str

    @abstractmethod
    def sample(self) -> Iterable[Value]:
        """Its values now. Raises SourceError."""

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """No more samples."""
