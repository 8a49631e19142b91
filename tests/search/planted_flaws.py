"""Flaws that were planted by hand to see what becomes of them, when no other list had them:
limits, slots, replicas and clocks that are not what they seem."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from llama_load.run_folder.observed.server_counters import ServerCounters
from tests.search.answers import Answer
from tests.search.cache_flaws import GROUPS
from tests.search.case import LLAMA_SERVER, OPENAI, VLLM, Case, Change
from tests.search.count_flaws import OUTPUT_COUNTS, PROMPT_COUNTS
from tests.search.effect import Effect, Reads, with_case
from tests.search.strange_gateways import HELD, ODD_ANSWERS
from tests.search.time_flaws import CHANGES_OF_TIME, TIMES

MS = 1_000_000
CACHED_FIRST_MS = 3.0
# Of a request that goes to two servers, the first answer: so much of the time of one.
HEDGED_PREFILL, HEDGED_GAP = 0.8, 0.9
# A guardrail reads each so many tokens for this long.
READ_TOKENS, READ_MS = 10, 300


class LimitedInFlight(Effect):
    """A gateway lets `size` requests through at a time, of a server that has more slots."""

    checks = ("unexplained_ratio", *CHANGES_OF_TIME)
    sizes = (1.0, 2.0)

    def __init__(self, change: Change, case: Case) -> None:
        super().__init__(change, case)
        self.free_ns = [0] * round(self.size)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """More would be worked on, and the server reports its times."""
        return case.at_once >= 4 and not case.stages and case.server != OPENAI

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        late_ns = max(0, self.free_ns.pop(0) - answer.begin_ns)
        answer.begin_ns += late_ns
        answer.unseen_ns += late_ns
        took_ns = answer.prefill_ns + round(float(answer.gaps_ns.sum()))
        self.free_ns.append(answer.begin_ns + took_ns)
        self.free_ns.sort()


class FastClock(Effect):
    """The client's clock runs `size` times too fast; the server's does not."""

    checks = ("stretched_stream_ratio", "unexplained_ratio")
    sizes = (1.1, 1.3)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """The server reports its times."""
        return case.server != OPENAI and bool(case.users)

    def read(self, answer: Answer, reads: Reads) -> Reads:
        """See `Effect.read`."""
        start_ns = answer.start_ns
        return [
            (start_ns + round((at_ns - start_ns) * self.size), data)
            for at_ns, data in reads
        ]


class BrokenReplica(Effect):
    """One of three replicas ends its answers after `size` tokens."""

    checks = (*ODD_ANSWERS, "replica_difference")
    sizes = (2.0, 8.0)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Enough requests for each, of one kind."""
        return case.requests >= 80 and not case.stages and case.workloads == 1

    @classmethod
    def changed(cls, case: Case, change: Change) -> Case:
        """See `Effect.changed`."""
        return with_case(case, hosts=3, users=3 * case.users, turns=1)

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        if answer.host == 1:
            kept = round(self.size)
            answer.words = answer.words[:kept]
            answer.gaps_ns = answer.gaps_ns[: kept - 1]
            answer.finish = "stop"


class CachedAndPaced(Effect):
    """A cache answers some requests at once, and paces the rest as the model would."""

    checks = (*GROUPS, "early_first_ratio", "other_client_ratio", "changed_ratio")
    shares = (0.1, 0.3)

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        if self.hits(answer.ask):
            answer.prefill_ns = round(CACHED_FIRST_MS * MS)


class HiddenSystemPrompt(Effect):
    """A gateway adds `size` tokens to each prompt, and reports those that it was sent."""

    checks = PROMPT_COUNTS
    sizes = (100.0, 1000.0)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """vLLM's counters show it."""
        return case.server == VLLM

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        more_ms = self.size * self.case.prefill_token_ms * answer.ask.prefill_factor
        answer.prefill_ns += round(more_ms * MS)
        answer.prompt_tokens += round(self.size)

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        if answer.reported is not None:
            answer.reported.prompt = answer.ask.prompt_tokens


class SlowSlot(Effect):
    """One of the slots is `size` times as slow: it is on another GPU."""

    checks = GROUPS
    sizes = (2.0, 4.0)

    def __init__(self, change: Change, case: Case) -> None:
        super().__init__(change, case)
        self.free_ns = 0

    @classmethod
    def fits(cls, case: Case) -> bool:
        """All slots are in use."""
        return case.slots >= 4 and not case.stages and case.users >= case.slots

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        if answer.begin_ns >= self.free_ns:
            answer.prefill_ns = round(answer.prefill_ns * self.size)
            answer.gaps_ns = answer.gaps_ns * self.size
            took_ns = answer.prefill_ns + round(float(answer.gaps_ns.sum()))
            self.free_ns = answer.begin_ns + took_ns


class WarmsUp(Effect):
    """The server is `size` times as slow at first, and less so over the first third."""

    checks = CHANGES_OF_TIME
    sizes = (3.0, 6.0)

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        factor = 1 + (self.size - 1) * math.exp(-answer.ask.place / 0.1)
        answer.prefill_ns = round(answer.prefill_ns * factor)
        answer.gaps_ns = answer.gaps_ns * factor


class UnevenWay(Effect):
    """The way delays each event by up to `size` ms, in order: a full buffer of a router."""

    checks = (*HELD, *CHANGES_OF_TIME)
    sizes = (100.0, 400.0)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """The server reports the times of each answer."""
        return case.server == LLAMA_SERVER

    def read(self, answer: Answer, reads: Reads) -> Reads:
        """See `Effect.read`."""
        rng = self.rng(answer.ask)
        part = rng.random()
        sent: Reads = []
        last_ns = 0
        for at_ns, data in reads:
            part = min(1.0, max(0.0, part + 0.2 * rng.standard_normal()))
            last_ns = max(last_ns + 1000, at_ns + round(part * self.size * MS))
            sent.append((last_ns, data))
        return sent


class BurstThenSlow(Effect):
    """A gateway's limit of bandwidth: after `size` tokens an answer goes on at a third of the pace."""

    checks = HELD
    sizes = (10.0, 20.0)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """The server reports its times."""
        return case.server != OPENAI and case.output_tokens >= 30

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        slow = answer.pieces[round(self.size) :]
        if slow:
            begin_ns = slow[0].at_ns
            for piece in slow:
                piece.at_ns = begin_ns + 3 * (piece.at_ns - begin_ns)
            answer.tail_ns = slow[-1].at_ns + MS // 10


class UsageIsTotal(Effect):
    """The output tokens of usage are those of prompt and answer."""

    checks = OUTPUT_COUNTS

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        reported = answer.reported
        if reported is not None and reported.output is not None:
            reported.output += answer.prompt_tokens


class CutBySize(Effect):
    """A gateway cuts answers after `size` characters, with finish_reason "stop"."""

    checks = ("clipped_answer_ratio", "short_answer_ratio")
    sizes = (100.0, 200.0)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Answers of different lengths, many of them longer."""
        return case.output_law in ("lognormal", "uniform") and case.output_tokens >= 30

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        ends = np.cumsum([len(word) for word in answer.words])
        kept = int(np.searchsorted(ends, self.size, side="right"))
        if kept < len(answer.words):
            answer.words = answer.words[: max(2, kept)]


class Hedged(Effect):
    """Each request goes to two servers, and the first answer wins."""

    checks = ("other_client_ratio", "counter_gap_ratio")

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Counters show it."""
        return case.server != OPENAI and case.choices == 1

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        answer.prefill_ns = round(answer.prefill_ns * HEDGED_PREFILL)
        answer.gaps_ns = answer.gaps_ns * HEDGED_GAP

    def count(self, counters: ServerCounters) -> ServerCounters:
        """See `Effect.count`."""

        def doubled(value: int | None) -> int | None:
            return None if value is None else 2 * value

        times = counters.times
        if times is not None:
            sums = {name: 2 * getattr(times, name) for name in TIMES}
            times = replace(times, requests=2 * times.requests, **sums)
        return replace(
            counters,
            prompt_tokens=doubled(counters.prompt_tokens),
            cache_queries=doubled(counters.cache_queries),
            requests=doubled(counters.requests),
            output_tokens=doubled(counters.output_tokens),
            times=times,
        )


class NeverEnds(Effect):
    """Some answers repeat one token until a limit of the server."""

    checks = ("equal_answer_ratio", "long_answer_ratio", "refused_ratio", *GROUPS)
    shares = (0.1, 0.2)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """Where answers end by themselves."""
        return case.output_law != "fixed" and case.output_tokens >= 30

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        if self.hits(answer.ask):
            count = 4 * self.case.output_tokens
            answer.words = [" the"] * count
            answer.gaps_ns = np.resize(answer.gaps_ns, count - 1)
            answer.finish = "length"


class EndSlows(Effect):
    """The server is `size` times as slow for the last twentieth of the requests."""

    checks = CHANGES_OF_TIME
    sizes = (5.0, 20.0)

    def serve(self, answer: Answer) -> None:
        """See `Effect.serve`."""
        if answer.ask.place >= 0.95:
            answer.prefill_ns = round(answer.prefill_ns * self.size)
            answer.gaps_ns = answer.gaps_ns * self.size


class ReadInParts(Effect):
    """A guardrail reads each ten tokens of an answer before it lets the next ones go."""

    checks = (*HELD, *CHANGES_OF_TIME)

    @classmethod
    def fits(cls, case: Case) -> bool:
        """The server reports its times."""
        return case.server != OPENAI

    def send(self, answer: Answer) -> None:
        """See `Effect.send`."""
        for place, piece in enumerate(answer.pieces):
            piece.at_ns += place // READ_TOKENS * READ_MS * MS
        answer.tail_ns = answer.pieces[-1].at_ns + MS // 10


PLANTED_FLAWS: dict[str, type[Effect]] = {
    "limited in flight": LimitedInFlight,
    "fast clock": FastClock,
    "broken replica": BrokenReplica,
    "cached and paced": CachedAndPaced,
    "hidden system prompt": HiddenSystemPrompt,
    "slow slot": SlowSlot,
    "warms up": WarmsUp,
    "uneven way": UnevenWay,
    "burst, then slow": BurstThenSlow,
    "usage is the total": UsageIsTotal,
    "cut by size": CutBySize,
    "hedged": Hedged,
    "never ends": NeverEnds,
    "end slows": EndSlows,
    "read in parts": ReadInParts,
}
