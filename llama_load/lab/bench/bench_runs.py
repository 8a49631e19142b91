"""The runs of a bench: their flags, and how long each takes.

| run | prompt | answer | users |
|---|---|---|---|
| ppN @ dD | N tokens behind D that are cached since the warm-up | 1 token | 1 |
| tgN @ dD | 8 tokens behind D that are cached since the warm-up | N + 1 tokens | 1 |
| U users at D | D tokens that no request had before | N tokens | U |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from llama_load.ground.units import quantity
from llama_load.lab.sweep.plan import FlagValues
from llama_load.lab.sweep.tests_load import (
    GENERATE,
    PROCESS,
    REQUESTS,
    SHORT_PROMPT,
    as_lists,
    test_label,
)

USERS = "users"

DEPTHS = (0, 4096, 16384, 32768)
LEVELS = (1, 2, 4, 8)  # numbers of users that are always tried, where there is time
MOST_USERS = 256
LEAST_REPEATS = 3  # of which an interval can be given
MOST_ROUNDS = 8
SHORT_CONTEXT = 256  # tokens of a user's prompt at depth 0
USERS_ANSWER = 64
# Lengths to choose from: the longest that leave enough time for the rest.
PROMPTS = (2048, 512, 128)
ANSWERS = (128, 32, 16)
MOST_SHARE = 0.1  # of the whole time, for a test at depth 0
ALONE_SHARE = 0.4  # of the whole time, for all tests of one user
# The throughput of u users is u to this power times that of one, until a run has shown more.
SCALING = 0.6


@dataclass(frozen=True, slots=True)
class BenchRun:
    """One run.

    `tokens`: that are timed (pp), or of an answer (tg, users); `requests`: that are measured.
    """

    kind: str
    depth: int
    tokens: int
    users: int = 1
    requests: int = REQUESTS

    @property
    def name(self) -> str:
        """As llama-bench writes it: `pp2048 @ d4096`; `4 users at 4096`."""
        if self.kind == USERS:
            return f"{quantity(self.users, 'user')} at {self.context}"
        return test_label(f"{self.kind}{self.tokens}", self.depth)

    @property
    def context(self) -> int:
        """Tokens of a user's prompt."""
        return max(self.depth, SHORT_CONTEXT)

    def flags(self, endpoint: str, scale: float) -> FlagValues:
        """Flags of locust. `scale`: tokens to ask for per token of the server, where the client
        must estimate lengths."""

        def length(tokens: int) -> int:
            return max(1, round(tokens * scale))

        flags: dict[str, Any] = {
            "u": self.users,
            "num-prompts": self.requests,
            "warmup": 1,
            "endpoint": endpoint,
            "ignore-eos": True,
            "no-report-html": True,
        }
        if self.kind == USERS:
            flags |= {
                "input-len": length(self.context),
                "output-len": self.tokens,
                "cache-prompt": "off",
            }
            return as_lists(flags)

        # Only a prefix is meant to be cached; at depth 0 there is none.
        flags["cache-prompt"] = "on" if self.depth else "off"
        if self.depth:
            flags["prefix-len"] = length(self.depth)
        if self.kind == PROCESS:
            flags |= {"input-len": length(self.tokens), "output-len": 1}
        else:
            flags |= {"input-len": SHORT_PROMPT, "output-len": self.tokens + 1}
        return as_lists(flags)


@dataclass(slots=True)
class Speed:
    """What is known of the server's speed, which each run corrects."""

    prefill_tok_per_s: float
    decode_tok_per_s: float
    start_s: float  # of a run, beside its requests
    _corrections: dict[tuple[str, int], float] = field(default_factory=dict)

    def seconds(self, run: BenchRun) -> float:
        """How long a run takes, its start and warm-up included."""
        return self.start_s + self._correction(run) * self._requests_s(run)

    def correct(self, run: BenchRun, took_s: float, requests_s: float) -> None:
        """Learn from a run that took this long, of it so long from its first request to the last
        one's end."""
        self.start_s = took_s - requests_s
        self._corrections[run.kind, run.depth] = requests_s / self._requests_s(run)

    def _correction(self, run: BenchRun) -> float:
        """Of the last run of this kind, at this depth if there was one."""
        here = self._corrections.get((run.kind, run.depth))
        if here is not None:
            return here
        last = 1.0
        for (kind, _), value in self._corrections.items():
            if kind == run.kind:
                last = value
        return last

    def _requests_s(self, run: BenchRun) -> float:
        depth_s = run.depth / self.prefill_tok_per_s
        token_s = 1 / self.decode_tok_per_s
        if run.kind == PROCESS:
            return depth_s + (run.requests + 1) * run.tokens / self.prefill_tok_per_s
        if run.kind == GENERATE:
            return depth_s + (run.requests + 1) * (run.tokens + 1) * token_s

        one_s = run.context / self.prefill_tok_per_s + run.tokens * token_s
        together: float = run.users**SCALING
        return one_s + run.requests * one_s / together


def chosen_lengths(speed: Speed, total_s: float) -> tuple[int, int]:
    """The tokens of pp and of tg: the longest whose test takes at most a tenth of the time."""
    prompt = _longest(PROCESS, PROMPTS, speed, total_s)
    answer = _longest(GENERATE, ANSWERS, speed, total_s)
    return prompt, answer


def _longest(kind: str, lengths: Sequence[int], speed: Speed, total_s: float) -> int:
    for tokens in lengths:
        if speed.seconds(BenchRun(kind, 0, tokens)) <= MOST_SHARE * total_s:
            return tokens
    return lengths[-1]


def tests_at(depth: int, prompt: int, answer: int, requests: int) -> list[BenchRun]:
    """Both tests of one user at a depth."""
    return [
        BenchRun(PROCESS, depth, prompt, requests=requests),
        BenchRun(GENERATE, depth, answer, requests=requests),
    ]


def alone_runs(
    depths: Sequence[int], lengths: tuple[int, int], speed: Speed, limit_s: float
) -> tuple[list[BenchRun], list[int]]:
    """The tests of one user that fit the time, and the depths that do not.

    At least those of the first depth. Where five requests do not fit, three do.
    """
    runs: list[BenchRun] = []
    spent_s = 0.0
    for place, depth in enumerate(depths):
        fitting: list[BenchRun] = []
        for requests in (REQUESTS, LEAST_REPEATS):
            tests = tests_at(depth, *lengths, requests)
            needed_s = sum(map(speed.seconds, tests))
            if spent_s + needed_s <= limit_s or (
                not runs and requests == LEAST_REPEATS
            ):
                fitting = tests
                spent_s += needed_s
                break
        if not fitting:
            return runs, list(depths[place:])
        runs += fitting
    return runs, []


Cells = Sequence[tuple[int, int]]  # depths and numbers of users


def next_users_run(
    cells: Cells, answer: int, speed: Speed, left_s: float
) -> BenchRun | None:
    """The cheapest of these, with as many rounds as all of them have time for; None: not even
    three rounds of it fit."""
    runs = [users_run(cell, answer, LEAST_REPEATS) for cell in cells]
    cheapest = min(runs, key=speed.seconds, default=None)
    if cheapest is None or speed.seconds(cheapest) > left_s:
        return None

    cell = (cheapest.depth, cheapest.users)
    for rounds in range(MOST_ROUNDS, LEAST_REPEATS, -1):
        if cells_s(cells, answer, rounds, speed) <= left_s:
            return users_run(cell, answer, rounds)
    return cheapest


def users_run(cell: tuple[int, int], answer: int, rounds: int) -> BenchRun:
    """A run of users at a depth."""
    depth, users = cell
    return BenchRun(USERS, depth, answer, users, rounds * users)


def cells_s(cells: Cells, answer: int, rounds: int, speed: Speed) -> float:
    """How long the runs of all these take."""
    needed_s = 0.0
    for cell in cells:
        needed_s += speed.seconds(users_run(cell, answer, rounds))
    return needed_s
