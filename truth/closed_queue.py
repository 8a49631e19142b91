"""The capacity of a server whose law is known: how many users it carries within a time to the first
token, by a simulation of the closed loop."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from functools import cache

from truth.cases import Answers, Load

REQUESTS = 40_000  # of a simulated load: the standard error of a share of 90 % is 0.2 %
MOST_USERS = 4096


@cache
def capacity(load: Load, server: Answers) -> int:
    """The most users of whom at least `share` of the requests have their first token within
    `ttft_ms`; 0 if it is missed by one."""
    low = 0
    high = 1
    while high <= MOST_USERS and share_within(high, load, server) >= load.share:
        low = high
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        if share_within(middle, load, server) >= load.share:
            low = middle
        else:
            high = middle
    return low


def share_within(users: int, load: Load, server: Answers) -> float:
    """The share of the requests whose first token comes within the objective, when each of the
    users sends the next request as soon as one is answered."""
    waits = waits_ms(users, server, load.tokens, REQUESTS, random.Random(users))
    met = sum(wait + server.first_token_ms <= load.ttft_ms for wait in waits)
    return met / REQUESTS


def waits_ms(
    users: int, server: Answers, tokens: int, requests: int, draw: random.Random
) -> Iterator[float]:
    """How long each of so many requests waits for its slot, after as many as there are users. First
    come, first served: when an answer ends, the request that has waited longest gets its slot, and
    its user sends another."""
    slots = min(users, server.slots)
    ends_ms = [_service_ms(server, tokens, draw) for _ in range(slots)]
    heapq.heapify(ends_ms)
    waiting = [0.0] * (users - slots)  # when each was sent, the oldest first
    for number in range(users + requests):
        now_ms = ends_ms[0]
        waiting.append(now_ms)
        sent_ms = waiting[number]
        heapq.heapreplace(ends_ms, now_ms + _service_ms(server, tokens, draw))
        if number >= users:
            yield now_ms - sent_ms


def _service_ms(server: Answers, tokens: int, draw: random.Random) -> float:
    """How long a request has its slot."""
    rest_ms = (tokens - 1) * server.interval_ms
    return server.first_token_ms + rest_ms * draw.expovariate(1.0)
