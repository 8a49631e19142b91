"""The one place of a process where sockets are read: two epoll sets and the rule when to look at them.

A wake-up costs more than parsing what it brings, and because the kernel stamps every segment on receipt
nothing is lost by reading a few milliseconds late. So:

- exchanges that connect, send or wait for their first token sit in the *urgent* set, read at once;
- exchanges that stream sit in the *batch* set. With few streams, or gaps too short for batching, it is
  read at once as well; otherwise every few milliseconds, all ready sockets in one go.

The period stays below a third of the smallest recent gap between tokens (its 1 % quantile, so that
one hiccup does not rule), because the kernel merges segments that wait unread in one receive queue and keeps only the
last one's stamp: 3 ms on gaps of 1.2 ms moved TTFT by +1.1 ms, on gaps of 5 ms by none.

gevent hides epoll; the original is kept in `select` by `monkey.get_original`. An epoll file descriptor
can itself be watched by gevent's loop, so no thread and no polling is needed.
"""

from __future__ import annotations

import _socket
import logging
import math
import os
import socket
import ssl
import time
from typing import Any

import gevent
from gevent import monkey
from gevent.hub import Waiter

from llama_load.wire.address import Address
from llama_load.wire.clock import SO_TIMESTAMPNS, wall_minus_mono_ns
from llama_load.wire.exchange import CONNECTING, Exchange
from llama_load.wire.request import EventReader, Request, Timeouts
from llama_load.wire.tls import TlsLayer, TlsOptions
from llama_load.wire.turns import Turns

logger = logging.getLogger(__name__)

READ_BUFFER_BYTES = 64 * 1024
FEW_STREAMS = 8  # below this, a wake-up a token is affordable and the freshest
LONGEST_PERIOD_NS = 3_000_000
SHORTEST_PERIOD_NS = 1_000_000  # libev's timers on epoll are no finer
TIMEOUT_SCAN_S = 0.1
# So many gaps are read at once; the shortest of them is what the estimate begins with.
LEARNING_GAPS = 64
# Multiplicative steps whose ratio makes the estimate settle where 1 % of the gaps are shorter.
GAP_DOWN, GAP_UP = 0.98, 1.0002

_EPOLLIN, _EPOLLOUT, _EPOLLERR, _EPOLLHUP = 0x1, 0x4, 0x8, 0x10


class Hub:
    """Sends requests and reads answers for all greenlets of one process. Get it by `Hub.of_this_process()`."""

    _instance: Hub | None = None

    def __init__(self) -> None:
        loop: Any = gevent.get_hub().loop
        epoll = monkey.get_original("select", "epoll")
        self.pid = os.getpid()
        self.good_endpoint: dict[Address, int] = {}
        self.active: set[Exchange] = set()
        self.gap_ns = math.inf
        self._gaps_to_learn = LEARNING_GAPS
        self._tls_context: ssl.SSLContext | None = None
        self._tls_sessions: dict[Address, ssl.SSLSession] = {}
        self._by_fd: dict[int, Exchange] = {}
        self._in_batch: set[int] = set()
        self._buffer = bytearray(READ_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._urgent = epoll()
        self._batch = epoll()
        self._urgent_watcher = loop.io(self._urgent.fileno(), 1)
        self._batch_watcher = loop.io(self._batch.fileno(), 1)
        self._urgent_watcher.start(self._read, self._urgent)
        self._batch_watcher.start(self._read_batch)
        self._loop = loop
        self.turns = Turns(loop)
        self._timer: Any = None
        self._period_ns = 0
        self._scan: Any = None
        # Linux switches receive stamps on for the whole machine with the first socket that wants them, a moment
        # after it is asked. One socket kept open for good means that no later segment arrives unstamped.
        self._keeper = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        if SO_TIMESTAMPNS is not None:
            self._keeper.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)

    @classmethod
    def of_this_process(cls) -> Hub:
        """The hub of this process, made on first use (never before a fork)."""
        if cls._instance is None or cls._instance.pid != os.getpid():
            cls._instance = cls()
        return cls._instance

    def send(self, address: Address, request: Request, reader: EventReader, timeouts: Timeouts) -> Exchange:
        """Carry out one exchange and return it when it is done.

        Blocks the calling greenlet only. Never raises for anything the server or the network does. When the
        greenlet is killed meanwhile, the connection is closed, and the GreenletExit goes on; use `begin` and
        `Exchange.cancel` where the exchange is needed then.
        """
        exchange = self.begin(address, request, reader, timeouts)
        try:
            exchange.wait()
        finally:
            exchange.cancel()
        return exchange

    def begin(self, address: Address, request: Request, reader: EventReader, timeouts: Timeouts) -> Exchange:
        """Start an exchange; `Exchange.wait` waits for its end. Others that are ready to go on go first."""
        self.turns.wait()
        exchange = Exchange(self, address, request, reader, timeouts, Waiter())
        self.active.add(exchange)
        if self._scan is None:
            self._scan = self._loop.timer(TIMEOUT_SCAN_S, TIMEOUT_SCAN_S, ref=False)
            self._scan.start(self._scan_timeouts)
        exchange.start()
        return exchange

    def trust(self, options: TlsOptions) -> None:
        """Whom https:// connections trust from now on. Raises OSError when the file of authorities is of no use."""
        self._tls_context = options.context()
        self._tls_sessions.clear()

    # ------------------------------------------------------------------ called by exchanges

    def tls_layer(self, address: Address) -> TlsLayer:
        """A fresh TLS connection's state, which will try to resume the last session with this address."""
        if self._tls_context is None:
            self.trust(TlsOptions())
        assert self._tls_context is not None
        return TlsLayer(self._tls_context, address.host, self._tls_sessions.get(address))

    def keep_session(self, address: Address, tls: TlsLayer) -> None:
        """Remember the session for the next connection: a resumed handshake spares the server its signature."""
        session = tls.session
        if session is not None and session.has_ticket:
            self._tls_sessions[address] = session

    def watch(self, exchange: Exchange, *, writable: bool) -> None:
        """Have the exchange's socket read at once, and written when it can be, if asked."""
        fd = exchange.fd
        mask = _EPOLLIN | _EPOLLOUT if writable else _EPOLLIN
        if fd in self._by_fd:
            self._urgent.modify(fd, mask)
        else:
            self._by_fd[fd] = exchange
            self._urgent.register(fd, mask)

    def now_streaming(self, exchange: Exchange) -> None:
        """The first progress came: from now on the exchange may be read in batches."""
        fd = exchange.fd
        self._urgent.unregister(fd)
        self._batch.register(fd, _EPOLLIN)
        self._in_batch.add(fd)
        self._retune()

    def unwatch(self, exchange: Exchange) -> None:
        """Forget the socket, which is about to be closed (which also takes it out of its epoll set)."""
        self._by_fd.pop(exchange.fd, None)
        self._in_batch.discard(exchange.fd)

    def forget(self, exchange: Exchange) -> None:
        """The exchange is over."""
        self.active.discard(exchange)
        self.turns.wake(exchange.waiter)
        self._retune()

    def saw_gap(self, gap_ns: int) -> None:
        """Learn from the time between two tokens of one stream."""
        if self._gaps_to_learn:
            self._gaps_to_learn -= 1
            self.gap_ns = min(self.gap_ns, gap_ns)
        else:
            self.gap_ns *= GAP_DOWN if gap_ns < self.gap_ns else GAP_UP

    # ------------------------------------------------------------------ called by the loop

    def _read(self, ready: Any) -> None:
        offset = wall_minus_mono_ns()
        now = time.monotonic_ns()
        by_fd, buffer, view = self._by_fd, self._buffer, self._view
        for fd, mask in ready.poll(0):
            exchange = by_fd.get(fd)
            if exchange is None:
                continue
            try:
                if mask & _EPOLLOUT or (mask & _EPOLLERR and exchange.phase == CONNECTING):
                    exchange.on_writable()
                if mask & (_EPOLLIN | _EPOLLERR | _EPOLLHUP):
                    exchange.on_readable(buffer, view, offset, now)
            except Exception as error:  # a fault of ours must cost one request, not the loop
                logger.exception("reading an answer failed")
                exchange.fail("client_error", f"llama-load itself failed: {error!r}")

    def _read_batch(self) -> None:
        self._read(self._batch)
        self._retune()

    def _retune(self) -> None:
        period = 0 if self._gaps_to_learn else min(LONGEST_PERIOD_NS, int(self.gap_ns / 3))
        if len(self._in_batch) < FEW_STREAMS or period < SHORTEST_PERIOD_NS:
            period = 0
        if period == self._period_ns or (period and self._period_ns and abs(period - self._period_ns) < 250_000):
            return
        if self._timer is not None:
            self._timer.stop()
            self._timer.close()
            self._timer = None
        if period:
            self._batch_watcher.stop()
            self._timer = self._loop.timer(period / 1e9, period / 1e9)
            self._timer.start(self._read_batch)
        else:
            self._batch_watcher.start(self._read_batch)
        self._period_ns = period

    def _scan_timeouts(self) -> None:
        now = time.monotonic_ns()
        for exchange in tuple(self.active):
            exchange.expired(now)
