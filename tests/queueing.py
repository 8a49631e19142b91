"""The theory of queues with k servers, first come first served: how long customers wait, on average
and on a given path.

M/M/k: arrivals by a Poisson process, exponential service times, k servers. Rates are customers a
second. ValueError where the queue would grow without end.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


def erlang_c(servers: int, load: float) -> float:
    """Probability that an arrival waits in M/M/k; load = arrival rate / service rate of one server,
    in erlangs.

    B(0) = 1, B(n) = load B(n-1) / (n + load B(n-1)); C = B(k) / (1 - (load / k) (1 - B(k))). 2
    servers, load 1: 1/3. Source: Erlang (1917); the recursion for B as in Cooper, Introduction to
    Queueing Theory, 2nd edition, chapter 3.
    """
    if not 0 < load < servers:
        raise ValueError(
            f"the load must be over 0 and below the {servers} servers, got {load}"
        )
    blocked = 1.0
    for number in range(1, servers + 1):
        blocked = load * blocked / (number + load * blocked)
    return blocked / (1 - load / servers * (1 - blocked))


def mean_wait_s(arrival_rate: float, service_rate: float, servers: int) -> float:
    """Mean wait of all arrivals in M/M/k, also of those who do not wait: C / (k mu - lambda), s.
    M/M/1 of 1 and 2: 0.5."""
    return erlang_c(servers, arrival_rate / service_rate) / (
        servers * service_rate - arrival_rate
    )


def wait_quantile_s(
    quantile: float, arrival_rate: float, service_rate: float, servers: int
) -> float:
    """The wait in M/M/k that this part of the arrivals (0 to below 1) does not exceed, s.

    P(wait > t) = C exp(-(k mu - lambda) t), so ln(C / (1 - quantile)) / (k mu - lambda), or 0 where
    fewer than that wait at all.
    """
    waiting = erlang_c(servers, arrival_rate / service_rate)
    return max(
        0.0,
        math.log(waiting / (1 - quantile)) / (servers * service_rate - arrival_rate),
    )


def waits_s(
    arrivals: Iterable[float], services: Iterable[float], servers: int
) -> NDArray[np.float64]:
    """The wait of each customer, in order of the queue, given the instants of arrival and the
    service times; in their unit.

    The recursion of Kiefer and Wolfowitz: each customer gets the server that is the first to be
    free, so begin(i) = max(arrival(i), the earliest end), and this server's end becomes begin(i) +
    service(i). Source: Kiefer and Wolfowitz, On the theory of queues with many servers (1955).
    """
    ends = [-math.inf] * servers
    waits = []
    for arrival, service in zip(arrivals, services, strict=True):
        begin = max(arrival, ends[0])
        heapq.heapreplace(ends, begin + service)
        waits.append(begin - arrival)
    return np.array(waits, dtype=np.float64)
