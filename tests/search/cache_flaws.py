"""Flaws of caches and stubs: prompts or answers that cost nothing, or were not worked on."""

from __future__ import annotations

import numpy as np

from tests.search.answers import Answer
from tests.search.asks import VOCABULARIES
from tests.search.case import LLAMA_SERVER, Case, Change
from tests.search.effect import Effect, with_case

GROUPS = ("second_group_ratio",)
PROMPT_CACHE = (
    "repeated_prompt_ratio",
    "server_cache_hit_ratio",
    "cached_prompt_ratio",
)
STUB_TOKENS = 20
REFUSAL = [
    "I",
    "am",
    "sorry",
    ",",
    "but",
    "I",
    "cannot",
    "help",
    "you",
    "with",
    "this",
    "request",
    ".",
]


class AnswersCached(Effect):
    """A gateway answers some requests from its cache, `size` times as fast, with the texts that the
    model would give."""

    checks = ("changed_ratio", "buffered_ratio", "other_client_ratio", *GROUPS)
    sizes = (5.0, 20.0, 100.0)
    shares = (0.05, 0.12, 0.3)

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        if self.hits(answer.ask):
            answer.prefill_ns = round(answer.prefill_ns / self.size)
            answer.gaps_ns = answer.gaps_ns / self.size


class BeginningsCached(Effect):
    """Prompts have a common beginning, `size` of their mean length, which the server has cached and
    does not report. That is how production sends them: no flaw."""

    is_flaw = False
    sizes = (0.3, 0.6, 0.9)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """llama-server reports its cache."""
        return (
            case.server != LLAMA_SERVER
            and case.turns == 1
            and not case.distinct
            and not case.common
        )

    @classmethod
    def changed(cls, case: Case, change: Change) -> Case:
        """See `Effect.changed`."""
        return with_case(case, common=change.size)

    def __init__(self, change: Change, case: Case) -> None:
        super().__init__(change, case)
        self.has_begun = False

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        if self.has_begun:
            cached = min(
                round(self.size * self.case.prompt_tokens), answer.prompt_tokens - 1
            )
            saved_ms = cached * self.case.prefill_token_ms * answer.ask.prefill_factor
            answer.prefill_ns -= round(saved_ms * 1e6)
            answer.cached = cached
        self.has_begun = True


class RepeatsCached(Effect):
    """The plan has few distinct prompts (`size` of the requests), and the server answers
    repetitions from its prompt cache, which it does not report."""

    checks = (*PROMPT_CACHE, "equal_answer_ratio", "changed_ratio", *GROUPS)
    sizes = (0.1, 0.5, 0.9)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """llama-server reports its cache."""
        return (
            case.server != LLAMA_SERVER
            and case.turns == 1
            and not case.common
            and not case.distinct
        )

    @classmethod
    def changed(cls, case: Case, change: Change) -> Case:
        """See `Effect.changed`."""
        return with_case(case, distinct=max(2, round(change.size * case.requests)))

    def __init__(self, change: Change, case: Case) -> None:
        super().__init__(change, case)
        self.seen: set[str] = set()

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        if answer.ask.text in self.seen:
            answer.cached = answer.prompt_tokens - 1
            answer.prefill_ns = round(self.case.prefill_ms * 1e6 / 4)
        self.seen.add(answer.ask.text)


class Refused(Effect):
    """Some prompts are refused: an answer of `size` words after a tenth of the time, finish_reason
    "stop"."""

    checks = (
        "refused_ratio",
        "abrupt_answer_ratio",
        "equal_answer_ratio",
        "short_answer_ratio",
        *GROUPS,
    )
    sizes = (4.0, 8.0, 12.0)
    shares = (0.06, 0.15, 0.35)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Answers are longer."""
        return case.output_tokens >= 30

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        if self.hits(answer.ask):
            answer.words = [f" {word}" for word in REFUSAL[: round(self.size)]]
            answer.gaps_ns = answer.gaps_ns[: len(answer.words) - 1]
            if len(answer.gaps_ns) < len(answer.words) - 1:
                answer.words = answer.words[: len(answer.gaps_ns) + 1]
            answer.prefill_ns = round(answer.prefill_ns / 10)
            answer.finish = "stop"


class Filtered(Effect):
    """A filter ends some answers after a third, and says so."""

    checks = ("refused_ratio",)
    shares = (0.05, 0.2)

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        if self.hits(answer.ask):
            answer.words = answer.words[: max(2, len(answer.words) // 3)]
            answer.finish = "content_filter"


class OneAnswer(Effect):
    """A stub gives one and the same answer, as fast as the model would give its own."""

    checks = ("equal_answer_ratio", "other_client_ratio")
    shares = (0.2, 1.0)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Long answers; of short ones equal ones show nothing."""
        return case.output_tokens >= 30 and not case.distinct

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        if self.hits(answer.ask):
            vocabulary = VOCABULARIES[self.case.language]
            answer.words = list(vocabulary[:STUB_TOKENS])
            answer.gaps_ns = np.resize(answer.gaps_ns, STUB_TOKENS - 1)
            answer.prefill_ns = round(answer.prefill_ns / 4)


class OtherModel(Effect):
    """Some answers come from a model that is `size` times as fast; `named`: under its own name."""

    checks = ("answer_models", "changed_ratio", *GROUPS)
    sizes = (2.0, 4.0)
    shares = (0.15, 0.4)

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        if self.hits(answer.ask):
            answer.prefill_ns = round(answer.prefill_ns / self.size)
            answer.gaps_ns = answer.gaps_ns / self.size


class SlowLane(OtherModel):
    """Some requests go to a machine that is `size` times as slow, all the time."""

    checks = GROUPS
    sizes = (2.0, 4.0)
    shares = (0.1, 0.3)

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        if self.hits(answer.ask):
            answer.prefill_ns = round(answer.prefill_ns * self.size)
            answer.gaps_ns = answer.gaps_ns * self.size


class HistoryDropped(Effect):
    """A gateway sends the last message of a conversation alone."""

    checks = ("shortened_prompt_ratio", "uncounted_prompt_ratio")

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Conversations."""
        return case.turns > 1

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        turn = answer.ask.turn or 1
        dropped = answer.prompt_tokens * (turn - 1) // turn
        answer.prompt_tokens -= dropped
        saved_ms = dropped * self.case.prefill_token_ms * answer.ask.prefill_factor
        answer.prefill_ns -= round(saved_ms * 1e6)


class OtherModelNamed(OtherModel):
    """The same, under its own name."""

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        if self.hits(answer.ask):
            answer.model = "another"


CACHE_FLAWS: dict[str, type[Effect]] = {
    "answers cached": AnswersCached,
    "beginnings cached": BeginningsCached,
    "repetitions cached": RepeatsCached,
    "refused": Refused,
    "filtered": Filtered,
    "one answer for all": OneAnswer,
    "another model": OtherModel,
    "another model, named": OtherModelNamed,
    "slow lane": SlowLane,
    "history dropped": HistoryDropped,
}
