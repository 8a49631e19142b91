"""Queues whose truth is known, simulated request by request: what searches and stopping rules are
held against.

M/M/k (open): Poisson arrivals, k slots, exponential service times, first come first served. The
closed loop: `users` that send their next request when the previous one is answered, at the same k
slots. Times are in mean service times. A request's latency is its wait plus its service time. The
first request arrives at an empty server, as in a run.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tests.queueing import erlang_c

Times = NDArray[np.float64]

# Of prompts of two kinds.
LONG_SHARE, LONG_SERVICE, SHORT_SERVICE = 0.15, 4.4, 0.4


def open_waits(
    load: float, slots: int, count: int, runs: int, draw: np.random.Generator
) -> tuple[Times, Times, Times]:
    """Arrivals, waits and service times of `count` requests of each run, in order of arrival;
    `load` is the share of the slots in use.

    The recursion of Kiefer and Wolfowitz, for all runs at once: a request gets the slot that is the
    first to be free.
    """
    arrivals = np.cumsum(draw.exponential(1 / (load * slots), (count, runs)), axis=0)
    services = draw.exponential(1.0, (count, runs))
    ends = np.zeros((runs, slots))
    waits = np.empty((count, runs))
    each = np.arange(runs)
    for number in range(count):
        slot = ends.argmin(axis=1)
        begins = np.maximum(arrivals[number], ends[each, slot])
        ends[each, slot] = begins + services[number]
        waits[number] = begins - arrivals[number]
    return arrivals.T, waits.T, services.T


def bimodal_services(count: int, runs: int, draw: np.random.Generator) -> Times:
    """Service times of two kinds of prompts, with a mean of 1: 85 % take 0.4 in the mean, 15 % 4.4,
    each exponential."""
    is_long = draw.random((count, runs)) < LONG_SHARE
    return np.where(is_long, LONG_SERVICE, SHORT_SERVICE) * draw.exponential(
        1.0, (count, runs)
    )


def closed_waits(
    users: int,
    slots: int,
    count: int,
    runs: int,
    draw: np.random.Generator,
    *,
    is_bimodal: bool = False,
) -> tuple[Times, Times, Times]:
    """The same in a closed loop, in order of start. `is_bimodal`: with `bimodal_services`.

    The n-th answer frees a slot for request n + slots, and its user sends request n + users; the
    first of each begin at 0.
    """
    services = (
        bimodal_services(count, runs, draw)
        if is_bimodal
        else draw.exponential(1.0, (count, runs))
    )
    begun, started = np.zeros((count + users, runs)), np.zeros((count + users, runs))
    busy = min(users, slots)
    ends = services[:busy].T.copy()
    each = np.arange(runs)
    for number in range(count - busy):
        slot = ends.argmin(axis=1)
        now = ends[each, slot]
        begun[number + busy], started[number + users] = now, now
        ends[each, slot] = now + services[number + busy]
    return started[:count].T, (begun - started)[:count].T, services.T


def share_within(limit: float, load: float, slots: int) -> float:
    """P(wait <= limit) in M/M/k: 1 - C exp(-k (1 - load) limit)."""
    return (
        1.0
        if load <= 0
        else 1 - erlang_c(slots, load * slots) * math.exp(-slots * (1 - load) * limit)
    )


def open_capacity(limit: float, slots: int, share: float) -> float:
    """The load at which this share of the requests waits at most `limit`; by bisection, since the
    share falls with the load."""
    low, high = 0.0, 1 - 1e-9
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (
            (middle, high)
            if share_within(limit, middle, slots) >= share
            else (low, middle)
        )
    return low


def closed_share(limit: float, users: int, slots: int) -> float:
    """P(wait <= limit) in the closed loop: an arrival finds users - slots before it, which k slots
    take at rate k.

    The wait is Erlang distributed: 1 - sum over i < n of exp(-k limit) (k limit)^i / i!, n = users
    - slots.
    """
    if users <= slots:
        return 1.0
    mean = slots * limit
    return 1 - sum(
        math.exp(i * math.log(mean) - mean - math.lgamma(i + 1))
        for i in range(users - slots)
    )


def closed_capacity(limit: float, slots: int, share: float) -> int:
    """The most users of whom this share of requests waits at most `limit`."""
    users = slots
    while closed_share(limit, users + 1, slots) >= share:
        users += 1
    return users


def open_latency_quantile(p: float, load: float, slots: int) -> float:
    """The p-quantile of wait + service in M/M/k, by bisection of its closed form.

    P(T > t) = (1 - C) e^-t + C P(E + S > t), with E exponential of rate r = k (1 - load) and S of
    rate 1.
    """
    waiting, rate = erlang_c(slots, load * slots), slots * (1 - load)

    def beyond(t: float) -> float:
        both = (
            (1 + t) * math.exp(-t)
            if abs(rate - 1) < 1e-9
            else (rate * math.exp(-t) - math.exp(-rate * t)) / (rate - 1)
        )
        return (1 - waiting) * math.exp(-t) + waiting * both

    low, high = 0.0, 1e4
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if beyond(middle) > 1 - p else (low, middle)
    return low


def closed_latency_quantile(
    p: float, users: int, slots: int, draw: np.random.Generator
) -> float:
    """The p-quantile of wait + service in the closed loop, from ten million draws of an Erlang wait
    and a service time."""
    drawn = draw.exponential(1.0, 10**7)
    if users > slots:
        drawn += draw.gamma(users - slots, 1 / slots, 10**7)
    return float(np.quantile(drawn, p))
