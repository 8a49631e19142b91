"""Clean but odd plans, which no check must doubt."""

from __future__ import annotations

from benchmarks.flaw_search.case import Case, Change
from benchmarks.flaw_search.effect import Effect, with_case


class Oddity(Effect):
    """A change that leaves the figures right."""

    is_flaw = False


class Chinese(Oddity):
    """Prompts and answers are Chinese."""

    @classmethod
    def changed(cls, case: Case, change: Change) -> Case:
        """See `Effect.changed`."""
        return with_case(case, language="chinese")


class BimodalPrompts(Oddity):
    """A fifth of the prompts is 16 times as long as the others."""

    @classmethod
    def changed(cls, case: Case, change: Change) -> Case:
        """See `Effect.changed`."""
        return with_case(case, prompt_law="bimodal")


ODDITIES: dict[str, type[Effect]] = {
    "chinese": Chinese,
    "bimodal_prompts": BimodalPrompts,
}
