"""How a streamed answer ends: three signs, of which two are enough.

1. a finish_reason of every choice, after which nothing of it came;
2. a mark: `[DONE]`, the last event of an API, or usage after the last token;
3. the end of the body, as HTTP has it.

A server or a relay may leave out any of them. One alone is not enough: relays end the body, or send
`[DONE]`, after a stream that broke off behind them. Of a server whose answers have a finish_reason,
an answer without one is cut off, unless it has `[DONE]` and usage: some servers name the limit
alone as a reason.
"""

from __future__ import annotations

from dataclasses import dataclass

NO_REASON = "no finish_reason"
NO_REASON_BUT_MARKS = "no finish_reason, but usage and [DONE]"


@dataclass(frozen=True, slots=True)
class EndSigns:
    """The signs of one answer. `reasons`: choices that have a finish_reason; `marks`: how many of
    usage and `[DONE]` came."""

    reasons: int
    without_reason: int
    marks: int
    body: bool

    @property
    def has_reason(self) -> bool:
        """Whether every choice has a finish_reason."""
        return self.reasons > 0 and not self.without_reason

    def are_enough(self, *, ends_by_reason: bool) -> bool:
        """Whether the answer is complete. `ends_by_reason`: whole answers of its server have a
        finish_reason."""
        if self.has_reason:
            return self.marks > 0 or self.body
        if not self.body or self.reasons:
            return False
        return self.marks > 1 or (self.marks > 0 and not ends_by_reason)

    def missing(self, choices: int) -> str:
        """Why the answer is not complete."""
        which = ""
        if choices > 1:
            which = f" for {self.without_reason} of {choices} choices"
        text = f"the stream ended without a finish_reason{which}"
        if self.marks:
            text += ", which others have"
        return text

    def notes(self) -> list[str]:
        """The sign that a complete answer lacks."""
        notes = []
        if not self.has_reason:
            notes.append(NO_REASON_BUT_MARKS if self.marks > 1 else NO_REASON)
        if not self.marks:
            notes.append("neither [DONE] nor usage")
        if not self.body:
            notes.append("no end of the body")
        return notes
