"""A check of a result: a value, the limit that it must not exceed (see `analysis.figures.check_limits`), and
a sentence."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from llama_load.analysis.figures.check_limits import LIMITS
from llama_load.analysis.figures.spoiled import are_whole
from llama_load.ground.units import plain_number
from llama_load.run_folder.vocabulary.bound import Bound
from llama_load.run_folder.vocabulary.verdict_words import BLURRED, NOT_COMPARABLE

PASSED = "✓"
NOT_PASSED = "✗"
UNKNOWN = "?"
NO_MARK = " "


# What makes the server slower by nobody knows how much: latencies are too large, rates too low, never
# the reverse. (JSON has no infinity.)
SLOWER = Bound(ms=1e12, ratio=1e12)


@dataclass(frozen=True, slots=True)
class Check:
    """A value, the limit it must not exceed, and a sentence.

    `ok` is False where the check failed. A check that did not fail passed only if it `is_known`.
    """

    name: str
    value: float | None
    limit: float | None  # None: for information
    ok: bool
    text: str
    stage: str | None = None  # the checked stage; None: the whole run
    # instead of the general remedy of its limit; "": the sentence has it
    advice: str | None = None
    # detection limit: the smallest value that it would have named with 95 %; None: exact
    detects: float | None = None
    spoils: tuple[
        str, ...
    ] = ()  # the figures that its failure spoils (see `analysis.figures.spoiled`)
    bound: Bound | None = None  # by how much, at most

    def __post_init__(self) -> None:
        """Numpy's numbers become Python's, which every writer takes; what is not a number (NaN) is
        unknown."""
        object.__setattr__(self, "value", plain_number(self.value))
        object.__setattr__(self, "limit", plain_number(self.limit))
        object.__setattr__(self, "detects", plain_number(self.detects))
        object.__setattr__(self, "ok", bool(self.ok) or self.value is None)

    @property
    def word(self) -> str:
        """The verdict's word if this check is not ok (see `word_of`)."""
        return word_of(self.name, self.spoils)

    @property
    def statement(self) -> str | None:
        """The statement that it tests (see `STATEMENTS`); None for information."""
        return None if self.limit is None else LIMITS[self.name].statement

    @property
    def is_main(self) -> bool:
        """Whether its statement holds only if this check passed."""
        return self.limit is not None and LIMITS[self.name].is_main

    @property
    def is_known(self) -> bool:
        """Whether there is evidence, and enough to see a flaw that matters."""
        if self.value is None or self.limit is None:
            return False
        return self.detects is None or self.detects <= max(
            self.limit, LIMITS[self.name].most_detects
        )

    @property
    def unseen(self) -> str:
        """The flaws that it would have seen, had the server given evidence; empty where it was
        judged, or where its evidence is not the server's."""
        if self.limit is None or not self.ok or self.is_known:
            return ""
        return LIMITS[self.name].unseen

    @property
    def passed(self) -> bool:
        """Whether the flaw is absent, and would have been seen."""
        return self.ok and self.is_known

    @property
    def remedy(self) -> str | None:
        """What to do if it is not ok; None for information."""
        if self.advice is not None or self.limit is None:
            return self.advice
        return LIMITS[self.name].remedy

    @property
    def mark(self) -> str:
        """✓ passed, ✗ failed, ? unknown: without evidence, or without enough to see a flaw that
        matters; a space for information."""
        if self.limit is None:
            return NO_MARK
        if not self.ok:
            return NOT_PASSED
        return PASSED if self.is_known else UNKNOWN

    @property
    def limit_text(self) -> str:
        """Its limit: `0.01`; empty for information."""
        return "" if self.limit is None else f"{self.limit:.4g}"

    @property
    def sentence(self) -> str:
        """The text, with the remedy where the check is not ok."""
        return (
            self.text if self.ok or not self.remedy else f"{self.text}; {self.remedy}"
        )


def word_of(name: str, spoils: Collection[str]) -> str:
    """The verdict's word where the check of this name fails. Where some figures are spoiled and the
    others can be compared, the run is not NOT COMPARABLE but BLURRED."""
    word = LIMITS[name].word
    is_partial = word == NOT_COMPARABLE and not are_whole(spoils)
    return BLURRED if is_partial else word


def limited(
    name: str,
    value: float | None,
    text: str,
    *,
    limit: float | None = None,
    advice: str | None = None,
    detects: float | None = None,
    spoils: tuple[str, ...] | None = None,
    bound: Bound | None = None,
) -> Check:
    """A check against its limit in `LIMITS`, or against `limit` if that is larger. An unknown value
    (None) is ok; its sentence must say which evidence is missing.

    `detects`: the detection limit, the smallest value that it would have named at this sample with
    95 % probability; None for an exact count. `spoils`: instead of the figures in `LIMITS`.
    `bound`: by how much its failure can change them."""
    row = LIMITS[name]
    limit = row.limit if limit is None else max(limit, row.limit)
    ok = value is None or bool(value <= limit)
    spoils = row.spoils if spoils is None else spoils
    return Check(
        name,
        value,
        limit,
        ok,
        text,
        advice=advice,
        detects=detects,
        spoils=spoils,
        bound=bound,
    )


def information(name: str, value: float | None, text: str) -> Check:
    """A check without a limit: it is reported and never changes the verdict."""
    return Check(name, value, None, True, text)
