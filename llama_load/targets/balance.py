"""Which of several replicas gets the next request."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

ROUND_ROBIN, LEAST_IN_FLIGHT = BALANCES = ("round-robin", "least-in-flight")


# A server that refuses at once always has the fewest requests in flight. Skip it this long if another server is available.
REFUSED_FOR_S = 1.0


class Balancer:
    """Chooses among `replicas` servers, numbered from 0: round-robin, or the one with the fewest requests in flight. The master has
    one balancer for all workers, so any number of workers balances like one client.

    Round-robin includes failed replicas, so that their failures show; least in flight skips a replica that refuses connections
    for a second.
    """

    def __init__(self, replicas: int = 1, how: str = ROUND_ROBIN, now_s: Callable[[], float] = time.monotonic) -> None:
        self._least = how == LEAST_IN_FLIGHT
        self._now_s = now_s
        self._next = 0
        self._returned: deque[int] = deque()  # turns that were not used
        self._refused_s = [-REFUSED_FOR_S] * replicas
        self._in_flight = [0] * replicas

    def choose(self, turns: int = 1) -> list[int]:
        """The replica of each request of a conversation with this many turns: in turn, or all at the one with the fewest requests
        in flight, since only one turn is in flight at a time. `ended` must be called once for all of them."""
        if not self._least:
            return [self._returned.popleft() if self._returned else self._turn() for _ in range(turns)]
        count = len(self._in_flight)
        replica = min(((self._next + number) % count for number in range(count)), key=self._burden)
        self._next = (replica + 1) % count
        self._in_flight[replica] += 1
        return [replica] * turns

    def ended(self, replica: int) -> None:
        """The conversation whose first request `choose` gave to this replica is over, or was never sent."""
        if self._least:
            self._in_flight[replica] -= 1

    def give_back(self, replica: int) -> None:
        """A request to this replica was not sent: the next request takes its turn."""
        if not self._least:
            self._returned.append(replica)

    def refused(self, replica: int) -> None:
        """This replica refused a connection."""
        self._refused_s[replica] = self._now_s()

    def _turn(self) -> int:
        replica, self._next = self._next, (self._next + 1) % len(self._in_flight)
        return replica

    def _burden(self, replica: int) -> tuple[bool, int]:
        return self._now_s() - self._refused_s[replica] < REFUSED_FOR_S, self._in_flight[replica]
