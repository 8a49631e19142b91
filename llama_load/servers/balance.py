"""Which of several replicas gets the next request."""

from __future__ import annotations

import time
from collections.abc import Callable

ROUND_ROBIN = "round-robin"
LEAST_IN_FLIGHT = "least-in-flight"
EVERY_TURN = "every-turn"
BALANCES = (ROUND_ROBIN, LEAST_IN_FLIGHT, EVERY_TURN)

# A server that refuses at once always has the fewest requests in flight. Skip it this long if
# another server is available.
REFUSED_FOR_S = 1.0


class Balancer:
    """Chooses among `replicas` servers: in turn, or the one with the fewest requests in flight.

    They are numbered from 0. The master has one balancer for all workers, so any number of workers
    balances like one client.

    A conversation stays with its replica, whose cache has its beginning. With `every-turn` its
    turns go to the replicas in turn. Taking turns includes failed replicas, so that their failures
    show; least in flight skips a replica that refuses connections for a second.
    """

    def __init__(
        self,
        replicas: int = 1,
        how: str = ROUND_ROBIN,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._how = how
        self._now_s = now_s
        self._next = 0
        self._conversations = [0] * replicas
        self._requests = [0] * replicas
        self._refused_s = [-REFUSED_FOR_S] * replicas
        self._in_flight = [0] * replicas

    def choose(self, turns: int = 1) -> list[int]:
        """The replica of each request of a conversation with this many turns.

        `ended` must be called once for all of them.
        """
        if self._how == EVERY_TURN:
            return [self._in_turn(1) for _ in range(turns)]
        if self._how == ROUND_ROBIN:
            return [self._in_turn(turns)] * turns

        count = len(self._in_flight)
        in_turn = [(self._next + number) % count for number in range(count)]
        replica = min(in_turn, key=self._burden)
        self._next = (replica + 1) % count
        self._in_flight[replica] += 1
        return [replica] * turns

    def ended(self, replica: int) -> None:
        """The conversation that `choose` gave to this replica is over, or was never sent.

        With `every-turn`: the one whose first request it gave to this replica.
        """
        if self._how == LEAST_IN_FLIGHT:
            self._in_flight[replica] -= 1

    def give_back(self, replica: int, *, follows: bool = False) -> None:
        """A request to this replica was not sent: another takes its turn.

        `follows`: it is not the first of its conversation.
        """
        self._requests[replica] -= 1
        if self._how == EVERY_TURN or not follows:
            self._conversations[replica] -= 1

    def refused(self, replica: int) -> None:
        """This replica refused a connection."""
        self._refused_s[replica] = self._now_s()

    def _in_turn(self, turns: int) -> int:
        """The next replica: every one gets a conversation before one gets its next.

        Of those that may get this one, a conversation longer than the mean goes to the replica with
        the fewest requests so far, a shorter one to that with the most. So the numbers of requests
        stay even, too.
        """
        count = len(self._requests)
        fewest = min(self._conversations)
        open_ones = [
            replica
            for replica in range(count)
            if self._conversations[replica] == fewest
        ]
        is_long = turns * sum(self._conversations) >= sum(self._requests)
        choose = min if is_long else max
        replica = choose(open_ones, key=self._requests.__getitem__)
        self._conversations[replica] += 1
        self._requests[replica] += turns
        return replica

    def _burden(self, replica: int) -> tuple[bool, int]:
        is_refusing = self._now_s() - self._refused_s[replica] < REFUSED_FOR_S
        return is_refusing, self._in_flight[replica]
