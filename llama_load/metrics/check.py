"""A check of a result: a value, the limit that it must not exceed (see `metrics.check_limits`), and a sentence."""

from __future__ import annotations

from dataclasses import dataclass

from llama_load.metrics.check_limits import LIMITS
from llama_load.units import plain_number


@dataclass(frozen=True, slots=True)
class Check:
    """A value, the limit it must not exceed, and a sentence."""

    name: str
    value: float | None
    limit: float | None  # None: for information
    ok: bool
    text: str
    stage: str | None = None  # the checked stage; None: the whole run
    advice: str | None = None  # instead of the general remedy of its limit; "": the sentence has it

    def __post_init__(self) -> None:
        """Numpy's numbers become Python's, which every writer takes; what is not a number (NaN) is unknown."""
        object.__setattr__(self, "value", plain_number(self.value))
        object.__setattr__(self, "limit", plain_number(self.limit))
        object.__setattr__(self, "ok", bool(self.ok) or self.value is None)

    @property
    def word(self) -> str:
        """The verdict's word if this check is not ok."""
        return LIMITS[self.name].word

    @property
    def statement(self) -> str | None:
        """The statement that it tests (see `STATEMENTS`); None for information."""
        return None if self.limit is None else LIMITS[self.name].statement

    @property
    def remedy(self) -> str | None:
        """What to do if it is not ok; None for information."""
        if self.advice is not None or self.limit is None:
            return self.advice
        return LIMITS[self.name].remedy

    @property
    def mark(self) -> str:
        """✓ passed, ✗ failed, ? without evidence; a space for information."""
        return " " if self.limit is None else "?" if self.value is None else "✓" if self.ok else "✗"

    @property
    def limit_text(self) -> str:
        """Its limit: `0.01`; empty for information."""
        return "" if self.limit is None else f"{self.limit:.4g}"

    @property
    def sentence(self) -> str:
        """The text, with the remedy where the check is not ok."""
        return self.text if self.ok or not self.remedy else f"{self.text}; {self.remedy}"


def limited(name: str, value: float | None, text: str, *, limit: float | None = None, advice: str | None = None) -> Check:
    """A check against its limit in `LIMITS`, or against `limit` if that is larger. An unknown value (None) is ok; its sentence
    must say which evidence is missing."""
    limit = LIMITS[name].limit if limit is None else max(limit, LIMITS[name].limit)
    return Check(name, value, limit, value is None or value <= limit, text, advice=advice)


def information(name: str, value: float | None, text: str) -> Check:
    """A check without a limit: it is reported and never changes the verdict."""
    return Check(name, value, None, True, text)
