"""Speculative decoding: drafted and accepted tokens, as the server counts them."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import zip_longest


@dataclass(frozen=True, slots=True)
class Speculation:
    """Counts over an interval."""

    draft_tokens: int
    accepted_tokens: int
    drafts: int | None = None  # None where the server reports tokens only
    # at place i the drafts whose token i was accepted; may be empty
    per_position: list[int] = field(default_factory=list)
    # output tokens of the answers, where the counts come from answers
    tokens: int | None = None

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted / drafted tokens, 0 to 1. 60 of 100: 0.6. Source: vLLM benchmarks/serve.py."""
        return self.accepted_tokens / self.draft_tokens if self.draft_tokens else None

    @property
    def acceptance_length(self) -> float | None:
        """Mean tokens per step of the model: 1 + accepted tokens / drafts. 60 accepted in 30
        drafts: 3.0.

        Where drafts are not counted: tokens / (tokens - accepted tokens), because a step yields one
        token beside the accepted ones. 90 tokens of which 60 were drafted: 3.0. Steps without a
        draft are in it, so it is the smaller one of both."""
        if self.drafts:
            return 1 + self.accepted_tokens / self.drafts
        if self.tokens is None:
            return None
        steps = self.tokens - self.accepted_tokens
        return self.tokens / steps if steps > 0 else None

    @property
    def per_position_rates(self) -> list[float]:
        """For each position in a draft the share of drafts, 0 to 1, whose token there was
        accepted."""
        if not self.drafts:
            return []

        rates = []
        for count in self.per_position:
            rates.append(count / self.drafts)
        return rates

    def plus(self, other: Speculation) -> Speculation:
        """The sum of both (two replicas)."""
        return self._combined(other, 1)

    def since(self, earlier: Speculation) -> Speculation | None:
        """The increase since `earlier`; None if a counter shrank, because the server was restarted
        in between."""
        grown = self._combined(earlier, -1)
        smallest = min(
            grown.draft_tokens,
            grown.accepted_tokens,
            grown.drafts or 0,
            *grown.per_position,
        )
        return None if smallest < 0 else grown

    def _combined(self, other: Speculation, sign: int) -> Speculation:
        drafts = None
        if self.drafts is not None and other.drafts is not None:
            drafts = self.drafts + sign * other.drafts

        per_position = []
        pairs = zip_longest(self.per_position, other.per_position, fillvalue=0)
        for mine, theirs in pairs:
            per_position.append(mine + sign * theirs)

        return Speculation(
            self.draft_tokens + sign * other.draft_tokens,
            self.accepted_tokens + sign * other.accepted_tokens,
            drafts,
            per_position,
        )
