"""Flaws of time: a server that is not the same all the time, or that is not one server."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from llama_load.ground.units import NS_PER_S
from llama_load.run_folder.observed.server_counters import ServerCounters
from tests.search.answers import Answer
from tests.search.cache_flaws import GROUPS
from tests.search.case import OPENAI, VLLM, Case, Change
from tests.search.effect import BEGIN_NS, Effect, with_case

TIMES = ("ttft_ms", "e2el_ms", "queue_ms", "prefill_ms", "decode_ms")
CHANGES_OF_TIME = (
    "changed_ratio",
    "cold_start_ratio",
    "backlog_ratio",
    "outlier_shift",
)


class Slower(Effect):
    """All work takes `size` times as long in a part of the run."""

    checks = CHANGES_OF_TIME
    sizes = (1.3, 2.0, 4.0)
    in_part = True

    def hits_work(self, answer: Answer) -> bool:
        """Whether the work for this answer takes longer."""
        return self.hits(answer.ask)

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        if self.hits_work(answer):
            answer.prefill_ns = round(answer.prefill_ns * self.size)
            answer.gaps_ns = answer.gaps_ns * self.size


class LaterTurnsSlower(Slower):
    """The same for later turns of conversations alone."""

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Conversations of several turns."""
        return case.turns > 1

    def hits_work(self, answer: Answer) -> bool:
        """See `Slower.hits_work`."""
        return self.hits(answer.ask) and (answer.ask.turn or 1) > 1


class OneWorkloadSlower(Slower):
    """The same for one of two workloads."""

    @classmethod
    def changed(cls, case: Case, change: Change) -> Case:
        """See `Effect.changed`."""
        return with_case(case, workloads=2, stages=())

    def hits_work(self, answer: Answer) -> bool:
        """See `Slower.hits_work`."""
        return self.hits(answer.ask) and answer.ask.workload == "second"


class Drift(Effect):
    """Gaps grow over the run, to `size` times their length at its end."""

    checks = CHANGES_OF_TIME
    sizes = (1.5, 4.0)

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        answer.gaps_ns = answer.gaps_ns * (1 + (self.size - 1) * answer.ask.place)


class ColdStart(Effect):
    """The first request's prompt takes `size` times as long: a model that is loaded, kernels that
    are compiled."""

    checks = CHANGES_OF_TIME
    sizes = (10.0, 60.0)

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        if answer.ask.index == 0:
            answer.prefill_ns = round(answer.prefill_ns * self.size)


class Stalled(Effect):
    """The server stands still for `size` s in the middle of the run."""

    checks = CHANGES_OF_TIME
    sizes = (2.0, 10.0)

    def __init__(self, change: Change, case: Case) -> None:
        super().__init__(change, case)
        self.begin_ns = BEGIN_NS + round(0.45 * case.nominal_s * NS_PER_S)

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`: the step that is under way waits."""
        pause_ns = round(self.size * NS_PER_S)
        first_ns = answer.begin_ns + answer.prefill_ns
        if self.begin_ns <= answer.begin_ns < self.begin_ns + pause_ns:
            answer.begin_ns = self.begin_ns + pause_ns
        elif answer.begin_ns < self.begin_ns < first_ns:
            answer.prefill_ns += pause_ns
        elif first_ns <= self.begin_ns:
            ends_ns = first_ns + np.cumsum(answer.gaps_ns)
            place = int(np.searchsorted(ends_ns, self.begin_ns))
            if place < len(answer.gaps_ns):
                answer.gaps_ns = answer.gaps_ns.copy()
                answer.gaps_ns[place] += pause_ns


class SlowReplica(Effect):
    """One of three replicas is `size` times as slow."""

    checks = ("replica_difference", "in_flight_imbalance", *GROUPS)
    sizes = (1.6, 3.0)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Enough requests for each."""
        return case.requests >= 80 and not case.stages

    @classmethod
    def changed(cls, case: Case, change: Change) -> Case:
        """See `Effect.changed`."""
        return with_case(case, hosts=3, users=3 * case.users, turns=1)

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        if answer.host == 2:
            answer.prefill_ns = round(answer.prefill_ns * self.size)
            answer.gaps_ns = answer.gaps_ns * self.size


class Preempted(Effect):
    """vLLM sets some requests aside in the middle, and computes their prompts again."""

    checks = ("preemption_ratio", *CHANGES_OF_TIME)
    shares = (0.03, 0.2)

    def __init__(self, change: Change, case: Case) -> None:
        super().__init__(change, case)
        self.preempted = 0

    @classmethod
    def fits(cls, case: Case) -> bool:
        """vLLM counts them."""
        return case.server == VLLM

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        if self.hits(answer.ask):
            gaps_ns = answer.gaps_ns.copy()
            gaps_ns[len(gaps_ns) // 2] += 2 * answer.prefill_ns
            answer.gaps_ns = gaps_ns
            self.preempted += 1

    def count(self, counters: ServerCounters) -> ServerCounters:
        """See `Effect.count`."""
        return replace(
            counters, preemptions=(counters.preemptions or 0) + self.preempted
        )


class OtherClient(Effect):
    """Another client sends as many requests as `size` of ours: ours wait for it."""

    checks = ("other_client_ratio", "changed_ratio")
    sizes = (0.1, 0.5)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Counters show it; nothing else could."""
        return case.server != OPENAI and case.choices == 1

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        answer.prefill_ns = round(answer.prefill_ns * (1 + self.size))
        answer.gaps_ns = answer.gaps_ns * (1 + self.size)

    def count(self, counters: ServerCounters) -> ServerCounters:
        """See `Effect.count`."""
        more = 1 + self.size

        def scaled(value: int | None) -> int | None:
            return None if value is None else round(more * value)

        times = counters.times
        if times is not None:
            requests = round(more * times.requests)
            sums = {name: more * getattr(times, name) for name in TIMES}
            times = replace(times, requests=requests, **sums)
        return replace(
            counters,
            prompt_tokens=scaled(counters.prompt_tokens),
            cache_queries=scaled(counters.cache_queries),
            requests=scaled(counters.requests),
            output_tokens=scaled(counters.output_tokens),
            times=times,
        )


TIME_FLAWS: dict[str, type[Effect]] = {
    "slower": Slower,
    "later turns slower": LaterTurnsSlower,
    "one workload slower": OneWorkloadSlower,
    "gaps grow": Drift,
    "cold start": ColdStart,
    "stalled": Stalled,
    "slow replica": SlowReplica,
    "preempted": Preempted,
    "another client": OtherClient,
}
