"""Clean but odd servers and plans: speeds that scatter, prefills that stall others, lengths that
grow."""

from __future__ import annotations

import numpy as np

from llama_load.run_folder import Manifest
from tests.search.answers import Answer
from tests.search.case import Case, Change
from tests.search.effect import Effect, with_case
from tests.search.oddities import Oddity


class SpeedsScatter(Oddity):
    """Each answer has its own speed, lognormal with sigma `size`."""

    sizes = (0.2, 0.5)

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        answer.gaps_ns = answer.gaps_ns * self.factor(answer)

    def factor(self, answer: Answer) -> float:
        """1 on average."""
        normal = float(self.rng(answer.ask).standard_normal())
        return float(np.exp(self.size * normal - self.size**2 / 2))


class PrefillsScatter(SpeedsScatter):
    """The time for a prompt is lognormal with sigma `size`."""

    sizes = (0.3, 0.8)

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        answer.prefill_ns = round(answer.prefill_ns * self.factor(answer))


class PrefillsStall(Oddity):
    """A step of the server waits for the prompts of others, `size` times in an answer on average;
    nothing happens where one user has the server alone."""

    sizes = (0.5, 3.0)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """A closed loop: the capacity is not what the arrivals were drawn for."""
        return bool(case.users)

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        if self.case.users == 1:
            return
        rng = self.rng(answer.ask)
        is_stalled = rng.random(len(answer.gaps_ns)) < self.size / max(
            1, len(answer.gaps_ns)
        )
        answer.gaps_ns = answer.gaps_ns + is_stalled * answer.prefill_ns
        if rng.random() < self.size / 4:
            answer.prefill_ns = round(answer.prefill_ns * (1 + rng.random()))


class PromptsGrow(Oddity):
    """The data set is sorted: prompts grow from half to twice their mean length."""

    @classmethod
    def changed(cls, case: Case, change: Change) -> Case:
        """See `Effect.changed`."""
        return with_case(case, prompt_law="growing")


class LengthsForced(Oddity):
    """Answers have exactly their requested length (--ignore-eos)."""

    @classmethod
    def changed(cls, case: Case, change: Change) -> Case:
        """See `Effect.changed`."""
        return with_case(case, output_law="fixed")

    def note(self, manifest: Manifest) -> None:
        """See `Effect.note`. Whoever forces lengths asks for no short answers."""
        are_short = any(change.name == "yes or no" for change in self.case.changes)
        manifest.fixed_lengths = self.case.output_law == "fixed" and not are_short


class YesOrNo(Oddity):
    """Answers are one of two sentences of four tokens, as a classification asks for: max_tokens is
    16."""

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Short answers, for which no more are allowed."""
        return case.output_tokens <= 16 and case.workloads == 1

    @classmethod
    def changed(cls, case: Case, change: Change) -> Case:
        """See `Effect.changed`."""
        return with_case(case, output_law="fixed", output_tokens=16)

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        is_yes = self.rng(answer.ask).random() < 0.5
        blanks = [word for word in answer.words if not word.strip()]
        verb = " true" if is_yes else " false"
        answer.words = [*blanks, " It", " is", verb, "."]
        answer.gaps_ns = answer.gaps_ns[: len(answer.words) - 1]
        answer.finish = "stop"


class LongTail(Oddity):
    """A prompt in fifty is ten times as long as the others."""

    @classmethod
    def changed(cls, case: Case, change: Change) -> Case:
        """See `Effect.changed`."""
        return with_case(case, prompt_law="long tail")


ODD_SERVERS: dict[str, type[Effect]] = {
    "speeds scatter": SpeedsScatter,
    "prefills scatter": PrefillsScatter,
    "prefills stall others": PrefillsStall,
    "prompts grow": PromptsGrow,
    "lengths forced": LengthsForced,
    "yes or no": YesOrNo,
    "long tail of prompts": LongTail,
}
