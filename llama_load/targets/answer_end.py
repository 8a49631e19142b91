"""How a streamed answer ends: three signs, of which two are enough.

1. a finish_reason of every choice, after which nothing of it came;
2. a mark: `[DONE]`, the last event of an API, or usage after the last token;
3. the end of the body, as HTTP has it.

A server or a relay may leave out any of them. One alone is not enough: relays end the body, or send
`[DONE]`, after a stream that broke off behind them. Of a server whose answers have a finish_reason,
an answer without one is cut off.
"""

from __future__ import annotations

from dataclasses import dataclass

NO_REASON = "no finish_reason"


@dataclass(frozen=True, slots=True)
class EndSigns:
    """The signs of one answer. `reasons`: choices that have a finish_reason."""

    reasons: int
    without_reason: int
    mark: bool
    body: bool

    @property
    def has_reason(self) -> bool:
        """Whether every choice has a finish_reason."""
        return self.reasons > 0 and not self.without_reason

    def are_enough(self, *, ends_by_reason: bool) -> bool:
        """Whether the answer is complete. `ends_by_reason`: whole answers of its server have a
        finish_reason."""
        if self.has_reason:
            return self.mark or self.body
        return self.mark and self.body and not self.reasons and not ends_by_reason

    def missing(self, choices: int) -> str:
        """Why the answer is not complete."""
        which = ""
        if choices > 1:
            which = f" for {self.without_reason} of {choices} choices"
        text = f"the stream ended without a finish_reason{which}"
        if self.mark:
            text += ", which others have"
        return text

    def notes(self) -> list[str]:
        """The sign that a complete answer lacks."""
        notes = []
        if not self.has_reason:
            notes.append(NO_REASON)
        if not self.mark:
            notes.append("neither [DONE] nor usage")
        if not self.body:
            notes.append("no end of the body")
        return notes
