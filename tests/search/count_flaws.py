"""Flaws of counts: what servers and gateways report of tokens."""

from __future__ import annotations

from tests.search.answers import Answer, Piece
from tests.search.case import ESTIMATE, LLAMA_SERVER, Case, Change
from tests.search.effect import Effect, with_case

OUTPUT_COUNTS = (
    "count_gap_ratio",
    "unbelievable_counts",
    "long_answer_ratio",
    "uncounted_ratio",
    "counter_gap_ratio",
    "tpot_bounds_ratio",
    "other_client_ratio",
)
PROMPT_COUNTS = (
    "shortened_prompt_ratio",
    "excess_prompt_ratio",
    "uncounted_prompt_ratio",
    "counter_gap_ratio",
    "other_client_ratio",
)
CHARS_PER_GUESSED_TOKEN = 4


class _Usage(Effect):
    """A gateway rewrites usage; llama-server's timings would show it beside its own count."""

    checks = OUTPUT_COUNTS
    shares = (1.0, 0.3)

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        if (
            self.hits(answer.ask)
            and answer.reported is not None
            and answer.reported.output is not None
        ):
            answer.reported.output = max(
                1, round(self.output(answer, answer.reported.output))
            )

    def output(self, answer: Answer, tokens: int) -> float:
        """The reported output tokens."""
        return self.size * tokens


class UsageScaled(_Usage):
    """Usage has `size` times the output tokens."""

    sizes = (0.5, 0.8, 1.07, 1.4, 3.0)


class UsageMore(_Usage):
    """Usage has `size` output tokens more."""

    sizes = (-2.0, 2.0, 20.0)

    def output(self, answer: Answer, tokens: int) -> float:
        """See `_Usage.output`."""
        return tokens + self.size


class UsageByCharacters(_Usage):
    """Usage is estimated: a token is four characters (of Chinese, three bytes)."""

    def output(self, answer: Answer, tokens: int) -> float:
        """See `_Usage.output`."""
        return len("".join(answer.words).encode()) / CHARS_PER_GUESSED_TOKEN


class UsageIsTheLimit(_Usage):
    """Usage has max_tokens, however long the answer is."""

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Not where all answers are that long."""
        return case.output_law != "fixed"

    def output(self, answer: Answer, tokens: int) -> float:
        """See `_Usage.output`."""
        return answer.ask.max_tokens


class UsageAddsUp(_Usage):
    """Usage is the sum over a conversation."""

    def __init__(self, change: Change, case: Case) -> None:
        super().__init__(change, case)
        self.sums: dict[str, int] = {}

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Conversations of several turns."""
        return case.turns > 1

    def output(self, answer: Answer, tokens: int) -> float:
        """See `_Usage.output`."""
        conversation = answer.ask.conversation or ""
        self.sums[conversation] = self.sums.get(conversation, 0) + tokens
        return self.sums[conversation]


class _ManyAnEvent(Effect):
    """Events hold `size` tokens."""

    is_form = True
    checks = OUTPUT_COUNTS
    sizes = (2.0, 5.0)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Not with timings."""
        return case.server != LLAMA_SERVER

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        joined(answer, round(self.size))
        self.report(answer)

    def report(self, answer: Answer) -> None:
        """Change the counts that are reported."""
        raise NotImplementedError


class OwnChunks(_ManyAnEvent):
    """A gateway puts `size` tokens into one event and counts its events as tokens."""

    def report(self, answer: Answer) -> None:
        """See `_ManyAnEvent.report`."""
        if answer.reported is not None:
            answer.reported.output = len(answer.pieces)


class NoUsageManyAnEvent(_ManyAnEvent):
    """Events hold `size` tokens, and no usage is sent."""

    def report(self, answer: Answer) -> None:
        """See `_ManyAnEvent.report`."""
        answer.reported = None


class NoUsage(Effect):
    """No usage is sent; prompts were counted by an estimate."""

    checks = PROMPT_COUNTS

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Not with timings."""
        return case.server != LLAMA_SERVER

    @classmethod
    def changed(cls, case: Case, change: Change) -> Case:
        """See `Effect.changed`."""
        return with_case(case, counted_by=ESTIMATE)

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        answer.reported = None


class PromptScaled(Effect):
    """Usage has `size` times the prompt tokens: without the cached ones, or with those of tools
    that were not sent."""

    checks = PROMPT_COUNTS
    sizes = (0.4, 0.7, 1.5, 4.0)
    shares = (1.0, 0.3)

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        if (
            self.hits(answer.ask)
            and answer.reported is not None
            and answer.reported.prompt is not None
        ):
            answer.reported.prompt = max(1, round(self.size * answer.reported.prompt))


class PromptWithOutput(Effect):
    """Usage counts the answer's tokens among those of the prompt."""

    checks = PROMPT_COUNTS

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        if answer.reported is not None and answer.reported.prompt is not None:
            answer.reported.prompt += len(answer.words)


class HiddenThinking(Effect):
    """The first tokens, `size` of all, are thoughts that are neither shown nor reported as such."""

    is_form = True
    checks = (*OUTPUT_COUNTS, "tokens_per_event")
    sizes = (0.08, 0.3, 0.6)
    shares = (1.0, 0.4)
    in_truth = True

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        if self.hits(answer.ask):
            hidden = min(len(answer.words) - 3, round(self.size * len(answer.words)))
            answer.show(list(range(hidden, len(answer.words))))


def joined(answer: Answer, size: int, first: int = 0) -> None:
    """Put `size` tokens into one event, which is sent with the last of them; the first event has
    `first` (0: as many)."""
    pieces: list[Piece] = []
    begin = 0
    while begin < len(answer.pieces):
        taken = answer.pieces[begin : begin + (first if first and not begin else size)]
        text = "".join(piece.text for piece in taken)
        pieces.append(
            Piece(
                taken[-1].at_ns,
                text,
                taken[0].field,
                sum(piece.tokens for piece in taken),
                taken[0].choice,
            )
        )
        begin += len(taken)
    answer.pieces = pieces


COUNT_FLAWS: dict[str, type[Effect]] = {
    "usage scaled": UsageScaled,
    "usage more or less": UsageMore,
    "usage by characters": UsageByCharacters,
    "usage is the limit": UsageIsTheLimit,
    "usage adds up": UsageAddsUp,
    "own chunks counted": OwnChunks,
    "no usage, several tokens an event": NoUsageManyAnEvent,
    "no usage, estimated prompts": NoUsage,
    "prompt tokens scaled": PromptScaled,
    "prompts with answers": PromptWithOutput,
    "hidden thinking": HiddenThinking,
}
