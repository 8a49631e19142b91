"""Clean but odd runs that were planted by hand to see whether they are doubted."""

from __future__ import annotations

import numpy as np

from tests.search.answers import Answer
from tests.search.case import LLAMA_SERVER, Case, Change
from tests.search.effect import Effect, with_case
from tests.search.oddities import Oddity

MS = 1_000_000
COLLECTED_EACH_NS, COLLECTED_NS = 2000 * MS, 150 * MS


class Collected(Oddity):
    """The server stops everything for 150 ms each two seconds, to collect its garbage. A run of few
    seconds sees a single stop, and may say so where it makes 5 % of a mean."""

    checks = ("outlier_shift",)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """A closed loop: the arrivals of an open one were drawn without these stops."""
        return bool(case.users)

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        first_ns = answer.begin_ns + answer.prefill_ns
        ends_ns = np.concatenate(([first_ns], first_ns + np.cumsum(answer.gaps_ns)))
        stops = np.floor(ends_ns / COLLECTED_EACH_NS)
        answer.gaps_ns = answer.gaps_ns + np.diff(stops) * COLLECTED_NS


class Alternating(Oddity):
    """Gaps are short and long in turns: two batches take turns."""

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        is_long = np.arange(len(answer.gaps_ns)) % 2 == 1
        answer.gaps_ns = answer.gaps_ns * np.where(is_long, 1.6, 0.4)


class LongAnswers(Oddity):
    """Prompts of 10 tokens on average, answers of 150."""

    @classmethod
    def fits(cls, case: Case) -> bool:
        """One workload."""
        return case.workloads == 1

    @classmethod
    def changed(cls, case: Case, change: Change) -> Case:
        """See `Effect.changed`."""
        return with_case(case, prompt_tokens=10, output_tokens=150)


class SpeedsUp(Oddity):
    """The second half of each answer comes faster: a draft model that has learned it."""

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        gaps_ns = np.array(answer.gaps_ns, dtype=np.float64)
        gaps_ns[len(gaps_ns) // 2 :] *= 0.6
        answer.gaps_ns = gaps_ns


class LateHeaders(Oddity):
    """Headers come just before the first token, as of many gateways."""

    @classmethod
    def fits(cls, case: Case) -> bool:
        """llama-server sends them when a request has a slot."""
        return case.server != LLAMA_SERVER

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        answer.headers_ns = int(answer.pieces[0].at_ns) - MS


PLANTED_ODDITIES: dict[str, type[Effect]] = {
    "garbage collected": Collected,
    "gaps in turns": Alternating,
    "long answers": LongAnswers,
    "speeds up": SpeedsUp,
    "late headers": LateHeaders,
}
