"""Clean but odd plans, which no check must doubt: their figures are right, or the report marks
them."""

from __future__ import annotations

import numpy as np

from llama_load.run_folder import Manifest
from tests.search.answers import CALL_BEGIN, REASONING, TOOL_CALL, Answer, Piece
from tests.search.case import LLAMA_SERVER, OPENAI, Case, Change
from tests.search.count_flaws import joined
from tests.search.dialect import chunk
from tests.search.effect import Effect, Reads, with_case

BLURS = ("merged_ratio", "tokens_per_event")
# TPOT is marked where it is not known which tokens lie between the first event and the last.
NO_TPOT = ("tpot_bounds_ratio",)


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


class BimodalAnswers(Oddity):
    """A fifth of the answers is 16 times as long as the others: short ones are short by choice."""

    @classmethod
    def fits(cls, case: Case) -> bool:
        """The short ones have more than the four tokens of an abrupt answer."""
        return case.output_tokens >= 30

    @classmethod
    def changed(cls, case: Case, change: Change) -> Case:
        """See `Effect.changed`."""
        return with_case(case, output_law="bimodal")


class Scattered(Oddity):
    """Gaps scatter by a factor of two."""

    @classmethod
    def changed(cls, case: Case, change: Change) -> Case:
        """See `Effect.changed`."""
        return with_case(case, jitter=0.7)


class Queued(Oddity):
    """Four users for each slot."""

    @classmethod
    def fits(cls, case: Case) -> bool:
        """A closed loop."""
        return bool(case.users) and not case.stages

    @classmethod
    def changed(cls, case: Case, change: Change) -> Case:
        """See `Effect.changed`."""
        return with_case(case, users=4 * case.slots * case.hosts)


class Replicas(Oddity):
    """Three equal replicas."""

    @classmethod
    def fits(cls, case: Case) -> bool:
        """One so far."""
        return case.hosts == 1 and not case.stages and case.turns == 1

    @classmethod
    def changed(cls, case: Case, change: Change) -> Case:
        """See `Effect.changed`."""
        return with_case(case, hosts=3, users=3 * case.users)


class CachingDeclared(Oddity):
    """Few distinct prompts, which the server has in its cache from a warm-up, as --cache-prompt on
    declares."""

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Prompts are new so far."""
        return not case.distinct and not case.common and case.turns == 1

    @classmethod
    def changed(cls, case: Case, change: Change) -> Case:
        """See `Effect.changed`."""
        return with_case(case, distinct=max(2, case.requests // 10))

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        answer.cached = answer.prompt_tokens - 1
        answer.prefill_ns = round(self.case.prefill_ms * 1e6 / 4)

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        if answer.reported is not None:
            answer.reported.cached = answer.cached

    def note(self, manifest: Manifest) -> None:
        """See `Effect.note`."""
        manifest.cache_meant = True


class CommonBeginning(Oddity):
    """Prompts of one's own begin alike, for a tenth of their length, and nothing is cached."""

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Prompts are new so far."""
        return not case.distinct and not case.common and case.turns == 1

    @classmethod
    def changed(cls, case: Case, change: Change) -> Case:
        """See `Effect.changed`."""
        return with_case(case, common=0.1)


class HistoryCached(Oddity):
    """Later turns take the history of their conversation from the prompt cache, as every server
    does; it is reported."""

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Conversations."""
        return case.turns > 1

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        turn = answer.ask.turn or 1
        answer.cached = round(answer.prompt_tokens * (turn - 1) / turn)
        saved_ms = (
            answer.cached * self.case.prefill_token_ms * answer.ask.prefill_factor
        )
        answer.prefill_ns -= round(saved_ms * 1e6)

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        if answer.reported is not None:
            answer.reported.cached = answer.cached


class Speculated(Oddity):
    """Speculative decoding: up to four tokens at an instant, each in its event; llama-server
    reports its drafts."""

    is_form = True
    checks = BLURS

    @classmethod
    def fits(cls, case: Case) -> bool:
        """One answer each."""
        return case.choices == 1

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        gaps_ns = np.asarray(answer.gaps_ns).copy()
        accepted = self.rng(answer.ask).random(len(gaps_ns)) < 0.5
        accepted[::4] = False  # the first token comes alone, from the prompt's step
        gaps_ns[accepted] = 0.0
        answer.gaps_ns = gaps_ns
        if self.case.server == LLAMA_SERVER:
            answer.accepted = int(accepted.sum())
            answer.drafted = 2 * answer.accepted

    def read(self, answer: Answer, reads: Reads) -> Reads:
        """See `Effect.read`: what is sent at one instant is read at once."""
        joint: Reads = []
        for at_ns, data in reads:
            if joint and joint[-1][0] == at_ns:
                joint[-1] = (at_ns, joint[-1][1] + data)
            else:
                joint.append((at_ns, data))
        return joint


class StreamInterval(Oddity):
    """vLLM's --stream-interval 4: the first token alone, then four an event, with usage."""

    is_form = True
    checks = (*BLURS, *NO_TPOT)

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        joined(answer, 4, first=1)
        last = answer.pieces[-1]
        # sent when the answer is known to end
        if answer.finish == "stop" and last.tokens < 4 and len(answer.pieces) > 1:
            last.at_ns = int(answer.instants[-1])
            answer.shown = list(range(len(answer.words)))


class UsageEach(Oddity):
    """Usage comes with every event."""

    is_form = True

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        answer.usage_each = True


class Reasoning(Oddity):
    """The first half of the tokens are thoughts, in a field of their own and reported."""

    is_form = True

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        thoughts = len(answer.pieces) // 2
        for piece in answer.pieces[:thoughts]:
            piece.field = REASONING
        if answer.reported is not None:
            answer.reported.reasoning = thoughts


class ThoughtsInText(Oddity):
    """A gateway puts the thoughts into the text, and reports them as reasoning tokens."""

    is_form = True

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        if answer.reported is not None:
            answer.reported.reasoning = len(answer.pieces) // 2


class ThoughtsHidden(Oddity):
    """The first tokens are thoughts that are not shown, and are reported as reasoning tokens."""

    is_form = True
    checks = NO_TPOT
    sizes = (0.08, 0.3)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Answers that are long enough."""
        return case.output_tokens >= 30 and case.output_law == "fixed"

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        hidden = round(self.size * len(answer.words))
        answer.show(list(range(hidden, len(answer.words))))
        if answer.reported is not None:
            answer.reported.reasoning = hidden


class ToolCalls(Oddity):
    """Answers are tool calls: the tokens of their markup and of the function's name are generated,
    and not shown."""

    is_form = True
    checks = NO_TPOT

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Answers that are long enough."""
        return case.output_tokens >= 30

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        count = len(answer.words)
        hidden = min(4, count - 3)
        answer.show(list(range(hidden, count - 1)))
        for piece in answer.pieces:
            piece.field = TOOL_CALL
        answer.pieces[0].field = CALL_BEGIN
        answer.finish = "tool_calls"


class BlankFirst(Oddity):
    """The first two tokens are blanks, which no reader sees."""

    is_form = True

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        answer.words = ["\n", " ", *answer.words[2:]]

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        answer.shown = list(range(2, len(answer.pieces)))


class Emoji(Oddity):
    """Each third character takes three tokens, and has one event."""

    is_form = True
    checks = (*BLURS, *NO_TPOT)

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        pieces: list[Piece] = []
        shown = []
        place = 0
        while place < len(answer.pieces):
            taken = (
                answer.pieces[place : place + 3]
                if len(pieces) % 3 == 1
                else answer.pieces[place : place + 1]
            )
            is_wide = len(taken) == 3
            pieces.append(
                Piece(
                    taken[-1].at_ns,
                    "🦙" if is_wide else taken[0].text,
                    tokens=len(taken),
                )
            )
            place += len(taken)
            shown.append(place - 1)
        answer.pieces = pieces
        answer.shown = shown


class KeepAlive(Oddity):
    """Comments keep the connection alive, every 100 ms until the first token."""

    def read(self, answer: Answer, reads: Reads) -> Reads:
        """See `Effect.read`."""
        first_ns, until_ns = reads[0][0], int(answer.instants[0])
        comments = [
            (at_ns, chunk(b": keep-alive\n\n"))
            for at_ns in range(first_ns + 10**8, until_ns, 10**8)
        ]
        return [reads[0], *sorted([*reads[1:], *comments], key=lambda read: read[0])]


class StopTrimmed(Oddity):
    """Answers end at a stop string of two tokens, which are counted and not sent; the text before
    is held back by one token."""

    is_form = True
    checks = NO_TPOT

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Answers that are not ended by length."""
        return case.output_law != "fixed" and case.output_tokens >= 30

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        answer.show(list(range(max(2, len(answer.words) - 2))))


class Twice(Oddity):
    """Two answers to each prompt (`n`), whose tokens come in turns; usage has both."""

    is_form = True
    checks = BLURS

    @classmethod
    def fits(cls, case: Case) -> bool:
        """llama-server counts one of them alone."""
        return case.server == OPENAI

    @classmethod
    def changed(cls, case: Case, change: Change) -> Case:
        """See `Effect.changed`."""
        return with_case(case, choices=2)

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        answer.words = [word for word in answer.words for _ in range(2)]
        gaps_ns = np.repeat(answer.gaps_ns, 2) / 2
        # an answer of one token has no gaps
        last_ns = gaps_ns[-1] if len(gaps_ns) else self.case.gap_ms * 1e6 / 2
        answer.gaps_ns = np.append(gaps_ns, last_ns)

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        for place, piece in enumerate(answer.pieces):
            piece.choice = place % 2


class NoDoubt(Oddity):
    """usage has null for what the server does not know: the prompt's tokens; a tokenizer counted
    them."""

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Counted exactly, template included."""
        return case.server == OPENAI and case.turns == 1

    @classmethod
    def changed(cls, case: Case, change: Change) -> Case:
        """See `Effect.changed`."""
        return with_case(case, counted_by="tokenizer", template_known=True)

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        if answer.reported is not None:
            answer.reported.prompt = None


ODD_PLANS: dict[str, type[Effect]] = {
    "Chinese": Chinese,
    "bimodal prompts": BimodalPrompts,
    "bimodal answers": BimodalAnswers,
    "scattered gaps": Scattered,
    "four users a slot": Queued,
    "three replicas": Replicas,
    "caching declared": CachingDeclared,
    "common beginning": CommonBeginning,
    "history cached": HistoryCached,
    "speculation": Speculated,
    "stream interval": StreamInterval,
    "usage with each event": UsageEach,
    "reasoning": Reasoning,
    "thoughts in the text": ThoughtsInText,
    "thoughts hidden": ThoughtsHidden,
    "tool calls": ToolCalls,
    "blanks first": BlankFirst,
    "emoji": Emoji,
    "keep-alive": KeepAlive,
    "stop strings": StopTrimmed,
    "two answers each": Twice,
    "prompts counted before": NoDoubt,
}
