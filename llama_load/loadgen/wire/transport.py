"""Starts requests and reads sockets, for the whole process."""

from __future__ import annotations

import _socket
import logging
import os
import socket
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import gevent
from gevent import monkey
from gevent.hub import Waiter

from llama_load.ground.clock import SO_TIMESTAMPNS
from llama_load.ground.failure_kind import FailureKind
from llama_load.ground.units import NS_PER_S
from llama_load.loadgen.wire.answer_body import AnswerBody
from llama_load.loadgen.wire.exchange import Exchange
from llama_load.loadgen.wire.fair_queue import BUDGET_NS, FairQueue
from llama_load.loadgen.wire.phase_clock import PhaseClock
from llama_load.loadgen.wire.poller import READABLE, WRITABLE, Received
from llama_load.loadgen.wire.pool import ConnectionPool
from llama_load.loadgen.wire.priority import SenderPriority
from llama_load.loadgen.wire.read_loop import ReadLoop
from llama_load.loadgen.wire.receiver import (
    COMPILED,
    PYTHON,
    ReceiverPriority,
    best_poller,
)
from llama_load.loadgen.wire.request import EventReader, Request, Timeouts
from llama_load.loadgen.wire.slab import SILENT_NS
from llama_load.servers.address import Address

logger = logging.getLogger(__name__)

TIMEOUT_SCAN_S = 0.1
# Reads of waiting bytes before timeouts are judged, each of up to 512 KiB per connection.
MOST_WAITING_READS = 16

# gevent hides poll(2).
_poll = monkey.get_original("select", "poll")


class Transport:
    """Sends requests and reads answers for all greenlets of one process. Get it by
    `Transport.of_this_process()`."""

    _instances: ClassVar[dict[str, Transport]] = {}

    def __init__(self) -> None:
        loop: Any = gevent.get_hub().loop
        self.pid = os.getpid()
        self.active: set[Exchange] = set()
        poller = best_poller(loop, self._handle, self._deliver)
        self.pool = ConnectionPool(poller, self._understand_later)
        self.fair_queue = FairQueue(loop)
        self._slabs = FairQueue(
            loop
        )  # apart, because new requests wait in the other one
        self._reads = ReadLoop()
        self._loop = loop
        self._scan: Any = None
        # Linux turns receive timestamps on for the whole machine with the first socket that
        # requests them, with a delay. One socket that stays open ensures that every later segment
        # has one.
        self._keeper = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        if SO_TIMESTAMPNS is not None:
            self._keeper.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)

    @classmethod
    def of_this_process(cls, use: str = "load") -> Transport:
        """The transport of this process, made on first use (never before a fork). Each `use` has
        its own, with its own queue and connections, so that what ends the requests of one leaves
        the others alone."""
        if (instance := cls._instances.get(use)) is None or instance.pid != os.getpid():
            instance = cls._instances[use] = cls()
        return instance

    def send(
        self,
        address: Address,
        request: Request,
        reader: EventReader,
        timeouts: Timeouts,
    ) -> Exchange:
        """Carry out one exchange and return it when it is done.

        Blocks only the calling greenlet. Never raises for server or network errors. If the greenlet
        is killed, the connection is closed and GreenletExit propagates; use `begin` and
        `Exchange.cancel` where the exchange is still needed.
        """
        exchange = self.begin(address, request, reader, timeouts)
        try:
            exchange.wait()
        finally:
            exchange.cancel()
        return exchange

    def begin(
        self,
        address: Address,
        request: Request,
        reader: EventReader,
        timeouts: Timeouts,
        earlier: Exchange | None = None,
    ) -> Exchange:
        """Start an exchange, after greenlets that were ready before; `Exchange.wait` waits for its
        end. `earlier`: it sends the request of that exchange again, and its time counts from
        there."""
        self.fair_queue.wait()
        exchange = Exchange(
            self.pool,
            address,
            request,
            PhaseClock(timeouts),
            AnswerBody(reader),
            Waiter(),
            self._over,
        )
        if earlier is not None:
            exchange.stamps.started_ns = earlier.stamps.started_ns
        self.active.add(exchange)
        if self._scan is None:
            self._scan = self._loop.timer(TIMEOUT_SCAN_S, TIMEOUT_SCAN_S, ref=False)
            self._scan.start(self._scan_timeouts)
        if request.give_up is not None and request.give_up.after_s is not None:
            self._hang_up_in_time(exchange, request.give_up.after_s)
        exchange.start()
        return exchange

    def _hang_up_in_time(self, exchange: Exchange, after_s: float) -> None:
        """Have the user hang up so long after the start of the request."""
        timer = self._loop.timer(_left_s(exchange, after_s))
        timer.start(self._hang_up, exchange, after_s, update=True)
        exchange.hang_up_timer = timer

    def _hang_up(self, exchange: Exchange, after_s: float) -> None:
        # The request starts later than the timer where its connection is opened first, or where the
        # machine stands still between the two.
        if _left_s(exchange, after_s) > 0:
            exchange.hang_up_timer.close()
            self._hang_up_in_time(exchange, after_s)
        else:
            exchange.abort()

    def _over(self, exchange: Exchange) -> None:
        self.active.discard(exchange)
        if exchange.hang_up_timer is not None:
            exchange.hang_up_timer.close()
        self.fair_queue.wake(exchange.waiter)

    @property
    def receiver_thread(self) -> int | None:
        """The id of the thread that receives; None where it is the event loop's."""
        return self.pool.poller.thread_id

    @property
    def receiver(self) -> str:
        """Which receiver it uses: `compiled` or `python`."""
        return PYTHON if self.receiver_thread is None else COMPILED

    def priority(self) -> SenderPriority | ReceiverPriority:
        """The priority of the thread that receives."""
        if self.receiver_thread is None:
            return SenderPriority()
        return ReceiverPriority(self.pool.poller)

    def catch_up(self) -> None:
        """Understand what has arrived of the answers under way, each at its turn: see
        `llama_load.loadgen.wire.exchange`. For a page that shows tokens while they arrive."""
        for exchange in tuple(self.active):
            self.pool.gather(exchange.connection)
            exchange.understand_soon()

    # ------------------------------------------------------------------ called by the loop

    def _handle(self, events: Sequence[tuple[int, int]]) -> None:
        self._reads.handle(self.pool, events)

    def _deliver(self, received: Received) -> None:
        self._reads.deliver(self.pool, received)

    def _understand_later(self, exchange: Exchange) -> None:
        self._slabs.call(partial(self._understand_in_turn, exchange))

    def _understand_in_turn(self, exchange: Exchange, _: None) -> None:
        self._understand(exchange, BUDGET_NS)
        slab = exchange.slab
        if slab is not None:
            slab.queued = bool(slab.reads)
            if slab.queued:
                self._understand_later(exchange)
                return
        self.pool.resume(exchange.connection)

    def _understand(self, exchange: Exchange, budget_ns: int | None = None) -> None:
        try:
            exchange.understand(budget_ns)
        except Exception as error:  # a bug here must cost one request, not the loop
            logger.exception("reading an answer failed")
            exchange.fail(
                FailureKind.CLIENT_ERROR, f"llama-load itself failed: {error!r}"
            )

    def _scan_timeouts(self) -> None:
        if overdue := self._overdue():
            self._read_waiting(overdue)
            for exchange in self._overdue():
                exchange.expire(time.monotonic_ns())

    def _overdue(self) -> list[Exchange]:
        now = time.monotonic_ns()
        self.pool.gather_silent(now - SILENT_NS)
        found = []
        for exchange in tuple(self.active):
            if exchange.became_overdue(now):
                self.pool.gather(exchange.connection)
                self._understand(exchange)
                found.append(exchange)
            elif exchange.is_silent(now):
                self._understand(exchange)
        # What had arrived in time may have ended it, or begun its next phase.
        return [each for each in found if each in self.active and each.is_overdue(now)]

    def _read_waiting(self, exchanges: Sequence[Exchange]) -> None:
        """Read bytes of these exchanges that wait in the kernel: after a pause of the process,
        timers run before reads."""
        poller = _poll()
        for exchange in exchanges:
            connection = exchange.connection
            if (
                connection is not None
                and connection.fd >= 0
                and not self.pool.poller.read_now(connection.fd)
            ):
                poller.register(
                    connection.fd,
                    READABLE if connection.all_sent else READABLE | WRITABLE,
                )
        for _ in range(MOST_WAITING_READS):
            ready = [
                (fd, bits) for fd, bits in poller.poll(0) if fd in self.pool.connections
            ]
            if not ready:
                return
            self._handle(ready)


def _left_s(exchange: Exchange, after_s: float) -> float:
    """Seconds until the request's user hangs up, `after_s` after its start; all of them where it
    has not started."""
    started_ns = exchange.stamps.started_ns
    if not started_ns:
        return after_s
    return max(0.0, after_s - (time.monotonic_ns() - started_ns) / NS_PER_S)
