"""Flaws of counts: what servers and gateways report of tokens."""

from __future__ import annotations

from benchmarks.flaw_search.answers import Answer
from benchmarks.flaw_search.case import LLAMA_SERVER, Case
from benchmarks.flaw_search.effect import Effect


class UsageScaled(Effect):
    """Usage has `size` times the output tokens."""

    checks = ("count_gap_ratio", "unbelievable_counts", "long_answer_ratio")
    sizes = (0.5, 0.8, 1.07, 1.4, 3.0)
    shares = (1.0, 0.3)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Not with timings, which have another count."""
        return case.server != LLAMA_SERVER

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        if self.hits(answer.ask) and answer.reported is not None:
            answer.reported.output = round(self.size * len(answer.words))


COUNT_FLAWS: dict[str, type[Effect]] = {
    "usage_scaled": UsageScaled,
}
