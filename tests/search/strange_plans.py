"""Clean but odd traffic and schedulers: very fast and very slow servers, steps of several tokens,
nodes that hand over, users who think."""

from __future__ import annotations

import numpy as np

from tests.search.answers import Answer
from tests.search.asks import VOCABULARIES, Ask
from tests.search.case import LLAMA_SERVER, Case, Change
from tests.search.effect import with_case
from tests.search.oddities import BLURS, Oddity, Speculated

MS = 1_000_000
STEP_TOKENS = 8
PERIOD_NS = 100 * MS


class _Waiting(Oddity):
    """Work that the arrivals of an open loop were not drawn for."""

    @classmethod
    def fits(cls, case: Case) -> bool:
        """A closed loop."""
        return bool(case.users)


class HandedOver(_Waiting):
    """The first token comes from a node for prompts, the second one `size` ms later (half to one
    and a half times that) from a node for answers. Source: github.com/vllm-project/vllm/issues/24309,
    github.com/kvcache-ai/Mooncake/issues/62."""

    sizes = (50.0, 400.0)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """A server that works so."""
        return super().fits(case) and case.server != LLAMA_SERVER

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        if len(answer.gaps_ns):
            answer.gaps_ns = answer.gaps_ns.copy()
            answer.gaps_ns[0] += self.size * MS * (0.5 + self.rng(answer.ask).random())


class BatchedArrivals(_Waiting):
    """Requests begin each `size` ms together. Modelled on Triton's dynamic batching."""

    sizes = (50.0, 500.0)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """A server that works so: llama-server begins at once."""
        return super().fits(case) and case.server != LLAMA_SERVER

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        step_ns = round(self.size * MS)
        answer.begin_ns = -(-answer.begin_ns // step_ns) * step_ns


class MultiStep(Speculated):
    """The first token comes alone, then eight at an instant, each in its event. Source:
    github.com/vllm-project/vllm/issues/6854 (multi-step scheduling)."""

    checks = BLURS

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        gaps_ns = np.asarray(answer.gaps_ns)
        stepped = np.zeros_like(gaps_ns)
        for begin in range(0, len(gaps_ns), STEP_TOKENS):
            stepped[begin] = gaps_ns[begin : begin + STEP_TOKENS].sum()
        answer.gaps_ns = stepped


class VeryFast(Oddity):
    """A token each 0.6 ms, the first after 6 ms. Modelled on servers with their own chips."""

    @classmethod
    def changed(cls, case: Case, change: Change) -> Case:
        """See `Effect.changed`."""
        return with_case(case, gap_ms=0.6, prefill_ms=6.0, prefill_token_ms=0.01)


class VerySlow(Oddity):
    """A token each 900 ms, the first after seconds: a large model on CPUs."""

    @classmethod
    def changed(cls, case: Case, change: Change) -> Case:
        """See `Effect.changed`."""
        return with_case(case, gap_ms=900.0, prefill_ms=500.0, prefill_token_ms=8.0)


class LongPrompts(Oddity):
    """Prompts of 4,000 tokens on average, answers of 16."""

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Single questions."""
        return case.turns == 1 and not case.common

    @classmethod
    def changed(cls, case: Case, change: Change) -> Case:
        """See `Effect.changed`."""
        return with_case(
            case, prompt_tokens=4000, output_tokens=16, prefill_token_ms=0.3
        )


class Skeleton(Oddity):
    """Answers are JSON documents of one form: four of five tokens are the same in all."""

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Answers with some values in them."""
        return case.output_tokens >= 30

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        form = VOCABULARIES[self.case.language]
        answer.words = [
            word if place % 5 == 4 or not word.strip() else form[place % len(form)]
            for place, word in enumerate(answer.words)
        ]


class Thinking(_Waiting):
    """Users think `size` s on average between an answer and their next request."""

    sizes = (0.5, 5.0)

    def pause_ns(self, ask: Ask) -> int:
        """See `Effect.pause_ns`."""
        return round(float(self.rng(ask).exponential(self.size * 1000 * MS)))


class LongerContext(Oddity):
    """Each token takes longer than the one before, up to twice as long, in each answer: the context
    grows."""

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        if len(answer.gaps_ns) > 1:
            grows = np.linspace(1.0, 2.0, len(answer.gaps_ns))
            answer.gaps_ns = answer.gaps_ns * grows / grows.mean()


class AnswersGrow(Oddity):
    """The data set is sorted: answers grow from half to twice their mean length."""

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Answers that are long enough."""
        return case.output_tokens >= 30

    @classmethod
    def changed(cls, case: Case, change: Change) -> Case:
        """See `Effect.changed`."""
        return with_case(case, output_law="growing")


class Quota(_Waiting):
    """The server may use its CPUs for `size` of each 100 ms. Source:
    github.com/kubernetes/kubernetes/issues/67577."""

    sizes = (0.5, 0.8)

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`: the time of work becomes time of the clock."""
        run_ns = self.size * PERIOD_NS
        first_ns = answer.begin_ns + answer.prefill_ns
        used_ns = min(first_ns % PERIOD_NS, run_ns)
        work_ns = used_ns + np.concatenate(([0.0], np.cumsum(answer.gaps_ns)))
        clock_ns = work_ns // run_ns * PERIOD_NS + work_ns % run_ns
        answer.gaps_ns = np.diff(clock_ns)


class StrongBatching(Oddity):
    """Each other request makes a step a quarter longer, as on CPUs. Others begin and end beside an
    answer: its steps go from those of its beginning to the usual ones."""

    @classmethod
    def changed(cls, case: Case, change: Change) -> Case:
        """See `Effect.changed`."""
        return with_case(case, batching=0.25)

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        case = self.case
        usual = case.load * (case.slots - 1)
        if case.users:
            usual = min(case.users, case.slots) - 1
        plain_ns = answer.ask.gap_factors * (case.gap_ms * MS)
        plain_ns = plain_ns[: len(answer.gaps_ns)]  # an answer may have been cut
        if not len(plain_ns):
            return
        at_begin = float(np.median(answer.gaps_ns / plain_ns))  # a stall is no load
        left = np.exp(-2 * np.arange(len(plain_ns)) / len(plain_ns))
        of_usual = 1 + case.batching * usual
        answer.gaps_ns = plain_ns * (of_usual + (at_begin - of_usual) * left)


class ChunkedPrefill(_Waiting):
    """Prompts of others are worked on in chunks: now and then four steps in a row are `size` times
    as long."""

    sizes = (2.0, 5.0)

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        if not len(answer.gaps_ns):
            return
        rng = self.rng(answer.ask)
        begins = rng.random(len(answer.gaps_ns)) < 1 / 20
        is_longer = np.convolve(begins, np.ones(4))[: len(answer.gaps_ns)] > 0
        answer.gaps_ns = answer.gaps_ns * np.where(is_longer, self.size, 1.0)


class EndsAnywhere(Oddity):
    """Lengths of answers are exponential: many end after a few tokens, as people's chats do."""

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Answers that end by themselves."""
        return case.output_law != "fixed" and case.output_tokens >= 30

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        kept = 6 + round(
            float(self.rng(answer.ask).exponential(self.case.output_tokens / 2))
        )
        answer.words = answer.words[:kept]
        answer.gaps_ns = answer.gaps_ns[: len(answer.words) - 1]


STRANGE_PLANS: dict[str, type[Oddity]] = {
    "handed over": HandedOver,
    "batched arrivals": BatchedArrivals,
    "eight tokens a step": MultiStep,
    "very fast": VeryFast,
    "very slow": VerySlow,
    "long prompts": LongPrompts,
    "answers of one form": Skeleton,
    "users who think": Thinking,
    "longer context": LongerContext,
    "answers grow": AnswersGrow,
    "CPU quota": Quota,
    "strong batching": StrongBatching,
    "chunked prefill": ChunkedPrefill,
    "ends anywhere": EndsAnywhere,
}
