"""Flaws of caches: prompts or answers that cost nothing."""

from __future__ import annotations

from benchmarks.flaw_search.answers import Answer
from benchmarks.flaw_search.asks import Ask
from benchmarks.flaw_search.case import LLAMA_SERVER, Case
from benchmarks.flaw_search.effect import Effect

TWO_POPULATIONS = ("two_groups",)


class AnswersCached(Effect):
    """A gateway answers some requests from its cache, `size` times as fast, with texts of its own."""

    checks = ("changed_ratio", "buffered_ratio", *TWO_POPULATIONS)
    sizes = (20.0, 100.0)
    shares = (0.05, 0.12, 0.3)

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        if self.hits(answer.ask):
            answer.prefill_ns = round(answer.prefill_ns / self.size)
            answer.gaps_ns = answer.gaps_ns / self.size
            answer.begin_ns = answer.start_ns + 500_000


class SilentPrefixCache(Effect):
    """The server has `size` of the prompt's work done before (a common beginning), and reports nothing of it."""

    checks = ("repeated_prompt_ratio", "common_prefix_ratio", "server_cache_hit_ratio", "cached_prompt_ratio")
    sizes = (0.3, 0.6, 0.9)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """llama-server reports its cache."""
        return case.server != LLAMA_SERVER and case.turns == 1

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.has_begun = False

    def text_of(self, ask: Ask) -> str:
        """The text with the common beginning."""
        return ask.text

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        if self.has_begun:
            answer.cached = round(self.size * answer.prompt_tokens)
            saved_ms = answer.cached * self.case.prefill_token_ms * answer.ask.prefill_factor
            answer.prefill_ns -= round(saved_ms * 1e6)
        self.has_begun = True


CACHE_FLAWS: dict[str, type[Effect]] = {
    "answers_cached": AnswersCached,
}
