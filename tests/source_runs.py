"""Runs whose answers come from one server, or for a part from something in front of it (a cache, a
filter, a second server).

A server has slots (or none that bind); prompts are prefilled in the slots at once, or one after the
other; answers are decoded, more slowly where many are. Prompts and answers have the lengths of
several laws.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.statistics.equal_work import Work
from llama_load.analysis.statistics.second_group import Looked, Server, by_pace, by_ttft

Floats = NDArray[np.float64]

FIXED_S, PREFILL_S, TPOT_S = 0.02, 0.0007, 0.02
SLOWER_BY_ONE = 0.03


@dataclass(frozen=True, kw_only=True)
class Case:
    """A run and, with `share`, what is wrong: this part of the answers is `ratio` times as fast
    (below 1: slower), and takes no slot."""

    name: str = ""
    users: int = 0  # a closed loop
    load: float = 0.0  # or an open loop, of the capacity
    slots: int = 4
    one_by_one: bool = False  # prompts are prefilled one after the other
    prompts: str = "lognormal"
    answers: str = "lognormal"
    speed: float = 0.05  # sigma of each answer's own speed
    noise: float = 0.1  # sigma of the time for a prompt
    # later turns have longer prompts, cached but for 40 tokens, as the server reports
    turns: int = 1
    # accepted drafts, unreported: each answer's speed by its text
    hidden_drafts: bool = False
    aborted: float = 0.0  # of the answers, after a part of them
    share: float = 0.0
    ratio: float = 1.0
    moves: str = "both"  # what the second group changes: "ttft", "tpot" or "both"
    # prompts of the second half take this many times as long
    later_prompts: float = 1.0


def lengths(rng: np.random.Generator, law: str, count: int) -> Floats:
    """Numbers of tokens."""
    laws = {
        "equal": lambda: np.full(count, 200.0),
        "lognormal": lambda: np.clip(rng.lognormal(5.0, 1.0, count), 5, 4000),
        "uniform": lambda: rng.uniform(20, 400, count),
        "bimodal": lambda: (
            np.where(rng.random(count) < 0.2, 3000.0, 60.0)
            * rng.lognormal(0, 0.1, count)
        ),
        "short": lambda: np.where(
            rng.random(count) < 0.3, 12.0, rng.uniform(100, 300, count)
        ),
    }
    return np.maximum(2.0, np.rint(laws[law]()))


def looked_at(case: Case, count: int, seed: int) -> tuple[Looked, Looked]:
    """What the verdict sees, by TTFT and by pace."""
    server, kinds, paces_ms = simulated(case, count, seed)
    return by_ttft([server], kinds), by_pace([server], kinds, paces_ms)


def simulated(
    case: Case, count: int, seed: int
) -> tuple[Server, NDArray[np.int64], Floats]:
    """The run: its one server, the kind of each request, and the time per token of each, ms."""
    rng = np.random.default_rng(seed)
    prompts = lengths(rng, case.prompts, count)
    answers = lengths(rng, case.answers, count)
    turn = np.arange(count) % case.turns
    history = turn * 300.0
    processed = np.where(turn > 0, np.minimum(prompts, 40.0) + 10, prompts)

    prefill_s = (FIXED_S + PREFILL_S * processed) * rng.lognormal(0, case.noise, count)
    prefill_s[count // 2 :] *= case.later_prompts
    speed = rng.lognormal(0, case.speed, count)
    if case.hidden_drafts:
        speed = speed / rng.uniform(1.2, 3.0, count)
    tpot_s = TPOT_S * speed * (1 + history * 1e-4)
    is_second = rng.random(count) < case.share
    usual_s = float(np.median(prefill_s))

    begins_s, firsts_s, ends_s = np.zeros(count), np.zeros(count), np.zeros(count)
    busy_s = float((prefill_s + tpot_s * answers).mean())
    arrivals_s = (
        np.cumsum(rng.exponential(busy_s / (case.slots * case.load), count))
        if case.load
        else np.zeros(count)
    )
    ready = [0.0] * case.users
    free = [0.0] * case.slots
    prefill_free_s = 0.0
    running: list[float] = []
    for number in range(count):
        start_s = float(arrivals_s[number]) if case.load else heapq.heappop(ready)
        while running and running[0] <= start_s:
            heapq.heappop(running)
        decode_s = float(tpot_s[number] * (answers[number] - 1)) * (
            1 + SLOWER_BY_ONE * len(running)
        )
        if is_second[number] and case.moves != "ttft":
            decode_s /= case.ratio
        if is_second[number] and case.moves != "tpot":
            first_s = start_s + usual_s / case.ratio * float(rng.lognormal(0, 0.1))
            end_s = first_s + decode_s
        else:
            begin_s = max(start_s, free[0])
            if case.one_by_one:
                begin_s = max(begin_s, prefill_free_s)
            first_s = begin_s + float(prefill_s[number])
            prefill_free_s = first_s
            end_s = first_s + decode_s
            heapq.heapreplace(free, end_s)
        heapq.heappush(running, end_s)
        if rng.random() < case.aborted:
            end_s = first_s + (end_s - first_s) * float(rng.random())
        begins_s[number], firsts_s[number], ends_s[number] = start_s, first_s, end_s
        if not case.load:
            heapq.heappush(ready, end_s)

    paces_ms = np.where(answers > 8, (ends_s - firsts_s) * 1000 / (answers - 1), np.nan)
    work = Work(
        started_ns=np.rint(begins_s * 1e9).astype(np.int64),
        first_ns=np.rint(firsts_s * 1e9).astype(np.int64),
        ended_ns=np.rint(ends_s * 1e9).astype(np.int64),
        prompt_tokens=processed,
        is_judged=np.ones(count, dtype=np.bool_),
    )
    kinds = (turn > 0).astype(np.int64)
    return Server(np.arange(count), work), kinds, paces_ms
