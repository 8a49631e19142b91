"""Flaws of counts as users report them in public trackers: usage of another moment, of another
request or of a part."""

from __future__ import annotations

from tests.search.answers import Answer
from tests.search.case import LLAMA_SERVER, VLLM, Case, Change
from tests.search.count_flaws import OUTPUT_COUNTS, PROMPT_COUNTS
from tests.search.effect import Effect

MS = 1_000_000


class UsageOfAnother(Effect):
    """A gateway keeps usage in a place that all its requests share: each answer has the count of
    the one before. Modelled on github.com/envoyproxy/ai-gateway/pull/2116 (a race of two
    streams)."""

    checks = OUTPUT_COUNTS

    def __init__(self, change: Change, case: Case) -> None:
        super().__init__(change, case)
        self.last: int | None = None

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Answers of different lengths."""
        return case.output_law != "fixed"

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        reported = answer.reported
        if reported is None or reported.output is None:
            return
        own = reported.output
        if self.last is not None:
            reported.output = self.last
        self.last = own


class UsageAtTheStart(Effect):
    """Usage has the output tokens of the moment at which the answer began: `size`. Source:
    Anthropic's message_start, kept by bridges: github.com/Portkey-AI/gateway/pull/353; zeros:
    github.com/BYK/loreai/pull/1485."""

    checks = OUTPUT_COUNTS
    sizes = (0.0, 1.0)
    shares = (1.0, 0.3)

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        if self.hits(answer.ask) and answer.reported is not None:
            answer.reported.output = round(self.size)


class PromptConstant(Effect):
    """Usage has the same `size` prompt tokens for every request. Source:
    github.com/mlx-node/mlx-node/pull/45 (always 0), github.com/tashfeenahmed/freellmapi/pull/845
    (1 for 3263)."""

    checks = PROMPT_COUNTS
    sizes = (0.0, 1.0, 10.0)

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        if answer.reported is not None:
            answer.reported.prompt = round(self.size)


class ThoughtsNotCounted(Effect):
    """The first tokens, `size` of all, are thoughts that are not shown, and of usage only
    total_tokens has them. Source: github.com/mozilla-ai/any-llm/issues/1290,
    github.com/Portkey-AI/gateway/pull/1458 (Gemini)."""

    is_form = True
    checks = OUTPUT_COUNTS
    sizes = (0.3, 0.6)
    in_truth = True

    @classmethod
    def fits(cls, case: Case) -> bool:
        """llama-server's timings would have all."""
        return case.server != LLAMA_SERVER and case.output_tokens >= 30

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        count = len(answer.words)
        hidden = min(count - 3, round(self.size * count))
        answer.show(list(range(hidden, count)))
        reported = answer.reported
        if (
            reported is not None
            and reported.prompt is not None
            and reported.output is not None
        ):
            reported.total = reported.prompt + reported.output
            reported.output -= hidden


class CompressedPrompts(Effect):
    """A gateway shortens prompts to `size` of their tokens before it passes them on, and reports
    those that it was sent. Source: github.com/BerriAI/litellm/pull/25729."""

    checks = (*PROMPT_COUNTS, "early_first_ratio")
    sizes = (0.3, 0.6)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """vLLM's counters show it."""
        return case.server == VLLM and case.prompt_tokens >= 100

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        kept = max(1, round(self.size * answer.prompt_tokens))
        saved = answer.prompt_tokens - kept
        saved_ms = saved * self.case.prefill_token_ms * answer.ask.prefill_factor
        answer.prefill_ns = max(MS, answer.prefill_ns - round(saved_ms * MS))
        answer.prompt_tokens = kept

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        if answer.reported is not None:
            answer.reported.prompt = answer.ask.prompt_tokens


STRANGE_COUNTS: dict[str, type[Effect]] = {
    "usage of another request": UsageOfAnother,
    "usage at the start": UsageAtTheStart,
    "prompt tokens constant": PromptConstant,
    "thoughts not counted": ThoughtsNotCounted,
    "prompts compressed": CompressedPrompts,
}
