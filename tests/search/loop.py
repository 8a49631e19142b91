"""The load in virtual time: a closed or an open loop on a server with slots, first come first
served."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from tests.search.answers import Answer
from tests.search.asks import Ask, asks_of
from tests.search.case import Case
from tests.search.dialect import reads_of
from tests.search.effect import BEGIN_NS, Effect

MS = 1_000_000
# From the start of a request until the server has it; from an answer's end until its user sends the
# next request.
WAY_NS, NEXT_NS = 400_000, 200_000
# Arrivals are drawn at the capacity of the server without its changes.
LONG_AGO = 0
OK = 200


@dataclass(slots=True)
class StageTimes:
    """When a stage began and when its last answer ended."""

    begun_ns: int
    ended_ns: int


@dataclass(slots=True)
class Played:
    """A run that was played: its answers in the order of their starts, and the times of its
    stages."""

    answers: list[Answer] = field(default_factory=list)
    stages: list[StageTimes] = field(default_factory=list)
    scheduled_ns: dict[int, int] = field(
        default_factory=dict
    )  # of an open loop, by index


class Loop:
    """Plays one case with these effects. `reads`: whether the bytes are made, too (the truth needs
    none)."""

    def __init__(
        self, case: Case, effects: Sequence[Effect], *, reads: bool = True
    ) -> None:
        self.case = case
        self.effects = effects
        self.readers = sorted(effects, key=lambda effect: effect.cuts_reads)
        self.makes_reads = reads
        self.slots = [[LONG_AGO] * case.slots for _ in range(case.hosts)]
        self.played = Played()
        # others that are worked on with the first requests of a closed loop, which start together
        self.beside_at_start = 0

    def play(self) -> Played:
        """All requests."""
        asks = asks_of(self.case)
        if not self.case.stages:
            if self.case.users:
                self._closed(asks, self.case.users, BEGIN_NS)
            else:
                self._open(asks)
            return self.played

        begun_ns = BEGIN_NS
        for number, of_stage in groupby(asks, key=lambda ask: ask.stage):
            ended_ns = self._closed(list(of_stage), self.case.stages[number], begun_ns)
            self.played.stages.append(StageTimes(begun_ns, ended_ns))
            begun_ns = ended_ns + MS
        return self.played

    def _closed(self, asks: Sequence[Ask], users: int, begun_ns: int) -> int:
        """Each user sends its next request when the last one is answered. When the last answer
        ended."""
        conversations = [
            list(group)
            for _, group in groupby(asks, key=lambda ask: ask.index // self.case.turns)
        ]
        conversations.reverse()
        ready = [(begun_ns + user * MS // 10, user) for user in range(users)]
        heapq.heapify(ready)
        own: dict[int, list[Ask]] = {user: [] for user in range(users)}
        ended_ns = begun_ns
        is_first = set(range(users))
        while ready:
            ready_ns, user = heapq.heappop(ready)
            self.beside_at_start = (
                min(self.case.slots, users // self.case.hosts) - 1
                if user in is_first
                else 0
            )
            is_first.discard(user)
            if not own[user]:
                if not conversations:
                    continue
                own[user] = conversations.pop()
            ask = own[user].pop(0)
            answer = self._answer(ask, ready_ns)
            ended_ns = max(ended_ns, answer.end_ns)
            pause_ns = NEXT_NS + sum(effect.pause_ns(ask) for effect in self.effects)
            heapq.heappush(ready, (answer.end_ns + pause_ns, user))
        return ended_ns

    def _open(self, asks: Sequence[Ask]) -> None:
        """Poisson arrivals."""
        rng = np.random.default_rng((self.case.seed, 2**31))
        service_ms = np.mean(
            [
                self._prefill_ms(ask) + self.case.gap_ms * (len(ask.words) - 1)
                for ask in asks
            ]
        )
        gap_ms = float(service_ms) * (
            1 + self.case.batching * self.case.load * (self.case.slots - 1)
        )
        gap_ms /= self.case.slots * self.case.hosts * self.case.load
        arrivals_ns = BEGIN_NS + np.rint(
            np.cumsum(rng.exponential(gap_ms * MS, len(asks)))
        ).astype(np.int64)
        for ask, scheduled_ns in zip(asks, arrivals_ns.tolist(), strict=True):
            self.played.scheduled_ns[ask.index] = scheduled_ns
            self._answer(ask, scheduled_ns + MS // 20)

    def _prefill_ms(self, ask: Ask) -> float:
        work_ms = self.case.prefill_ms + self.case.prefill_token_ms * ask.prompt_tokens
        return work_ms * ask.prefill_factor

    def _answer(self, ask: Ask, ready_ns: int) -> Answer:
        case = self.case
        start_ns = ready_ns + sum(
            effect.start_delay_ns(ask, ready_ns) for effect in self.effects
        )
        host = ask.index % case.hosts
        slots = self.slots[host]
        free_ns = heapq.heappop(slots)
        begin_ns = max(start_ns + WAY_NS, free_ns)
        beside = max(self.beside_at_start, sum(slot_ns > begin_ns for slot_ns in slots))
        gaps_ns = ask.gap_factors * (case.gap_ms * MS * (1 + case.batching * beside))
        answer = Answer(
            ask,
            start_ns,
            begin_ns,
            round(self._prefill_ms(ask) * MS),
            gaps_ns,
            list(ask.words),
            ask.finish,
            ask.prompt_tokens,
            host=host,
        )
        for effect in self.effects:
            effect.serve(answer)
        answer.time()
        heapq.heappush(slots, int(answer.instants[-1]))
        for effect in self.effects:
            # what was refused, by a time limit too, has no pieces to change
            if answer.status == OK:
                effect.send(answer)
        answer.end_ns = answer.tail_ns
        if self.makes_reads:
            reads = reads_of(case, answer)
            for effect in self.readers:
                reads = effect.read(answer, reads)
            answer.reads = reads
            answer.end_ns = reads[-1][0]
        self.played.answers.append(answer)
        return answer
