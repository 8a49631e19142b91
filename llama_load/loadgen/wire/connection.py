"""One TCP connection, with TLS for https://: opening, sending, receiving with arrival times.

    OPENING (connect, then the TLS handshake) ──► OPEN ──► CLOSED

A connection carries one exchange at a time and is parked (kept idle) in between. It handles bytes
and their arrival times, not their meaning.
"""

from __future__ import annotations

import _socket
import errno
import socket
import ssl
import time
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from llama_load.ground.clock import ANCILLARY_BYTES, SO_TIMESTAMPNS, BatchClock
from llama_load.ground.failure_kind import FailureKind
from llama_load.loadgen.wire.stamps import Opening
from llama_load.loadgen.wire.tcp_info import handshake_ns
from llama_load.servers.wire_failure import connect_failure, tls_text

if TYPE_CHECKING:
    from llama_load.loadgen.wire.slab import Slab
    from llama_load.loadgen.wire.stamps import ReadCounts, Stamps
    from llama_load.servers.address import Address
    from llama_load.servers.tls import TlsLayer

OPENING, OPEN, CLOSED = range(3)

# The most full buffers to read at once, so that a server that sends faster than they are read does
# not block the loop.
MOST_READS = 8
_READS = range(MOST_READS)
MOST_PIECES = 64  # in one sendmsg; the kernel takes up to 1024
# The most bytes handed to the kernel at once: copying them takes about 0.1 ms, in which other
# streams wait.
MOST_WRITTEN = 256 * 1024

_IN_PROGRESS = {errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EINTR}


def _at_most(pieces: Sequence[memoryview], size: int) -> list[memoryview]:
    """The beginning of these pieces: at most `size` bytes, and at most as many pieces as one call
    takes."""
    taken = []
    for piece in islice(pieces, MOST_PIECES):
        taken.append(piece[:size])
        size -= len(taken[-1])
        if size <= 0:
            break
    return taken


def _is_connected(sock: _socket.socket) -> bool:
    """Whether the connection is open; an error of opening it stays with the socket."""
    try:
        sock.getpeername()
    except OSError:
        return False
    return True


class Listener(Protocol):
    """The callbacks of a connection: an exchange. The connection sets its counts and timestamps."""

    stamps: Stamps
    counts: ReadCounts

    def on_start(self) -> None:
        """The connection is about to connect or, if it is open, to send."""

    def on_sent(self, at: int) -> None:
        """The whole request is with the kernel."""

    def take(self, data: bytes | memoryview, at: int) -> None:
        """Bytes of the answer were received at `at`."""

    def slab_is_full(self) -> None:
        """The slab that it keeps should be understood."""

    def fail(self, kind: FailureKind, text: str) -> None:
        """The connection cannot go on."""

    def connection_lost(self, kind: FailureKind, text: str, last_read_ns: int) -> None:
        """The server has ended the connection."""


class Home(Protocol):
    """The owner of a connection: a pool."""

    good_endpoint: dict[Address, int]

    def register(self, connection: Connection) -> None:
        """A new socket, not connected yet."""

    def receive(self, connection: Connection) -> None:
        """The connection is about to send: bytes may come."""

    def unregister(self, connection: Connection) -> None:
        """Stop watching the connection's socket, which is about to be closed."""

    def watch(self, connection: Connection, *, writable: bool) -> None:
        """Watch a socket that is open."""

    def keep_reads(
        self, connection: Connection, sock: _socket.socket, slab: Slab
    ) -> None:
        """From now on keep reads of whole events in `slab`."""

    def close_parked(self) -> None:
        """Close the idle connections, because file descriptors have run out."""

    def tls_layer(self, address: Address) -> TlsLayer:
        """The state of a new TLS connection."""

    def keep_session(self, address: Address, tls: TlsLayer) -> None:
        """Keep the TLS session for the next connection."""


class Connection:
    """A connection to `address` that calls its current `exchange`. No method raises for a network
    error or the peer's behaviour.

    `exchanges` counts completed exchanges. `opening` has the timestamps of opening it, None until
    then.
    """

    __slots__ = (
        "_endpoint",
        "_endpoints_tried",
        "_outgoing",
        "_sock",
        "_tls",
        "_unsent",
        "address",
        "exchange",
        "exchanges",
        "fd",
        "opening",
        "pool",
        "read_ns",
        "state",
    )

    def __init__(self, pool: Home, address: Address) -> None:
        self.pool = pool
        self.address = address
        self.exchange: Listener | None = None
        self.exchanges = 0
        self.state = OPENING
        self.fd = -1
        self.opening = Opening()
        self._sock: _socket.socket | None = None
        self._tls: TlsLayer | None = None
        self._endpoint = pool.good_endpoint.get(address, 0)
        self._endpoints_tried = 0
        self._outgoing: Sequence[bytes] = ()
        self._unsent: list[memoryview] = []
        self.read_ns = 0

    @property
    def all_sent(self) -> bool:
        """Whether nothing is left to send."""
        return not self._unsent

    # ------------------------------------------------------------------ going out

    def send(self, exchange: Listener, pieces: Sequence[bytes]) -> None:
        """Send a request, connecting first if needed, without blocking. `exchange` gets the
        callbacks."""
        self.exchange = exchange
        self._outgoing = pieces
        if self.state == OPENING:
            self._connect()
            return
        if self._tls is None:
            self._unsent = [memoryview(part) for part in self._outgoing if part]
        else:
            self._unsent = [memoryview(self._tls.encrypt(b"".join(pieces)))]
        exchange.on_start()
        self.pool.receive(self)
        self._write()
        if self._unsent:
            self.pool.watch(self, writable=True)

    def _connect(self) -> None:
        family, sockaddr = self.address.endpoints[self._endpoint]
        self._endpoints_tried += 1
        try:
            sock = self._new_socket(family)
        except OSError as error:  # most likely out of file descriptors
            self._fail(
                FailureKind.CONNECT_FAILED,
                f"no socket available: {error.strerror}; raise the limit with ulimit -n",
            )
            return

        self._sock = sock
        self.fd = sock.fileno()
        if self.address.scheme == "https":
            self._tls = self.pool.tls_layer(self.address)
            self._unsent = [memoryview(self._tls.hello())]
        else:
            self._unsent = [memoryview(part) for part in self._outgoing if part]
        assert self.exchange is not None
        self.pool.register(self)
        self.exchange.on_start()
        code = sock.connect_ex(sockaddr)
        if code and code not in _IN_PROGRESS:
            self._connect_failed(code)
            return
        self._write()
        if self.state != CLOSED and self._sock is sock:
            self.pool.watch(self, writable=bool(self._unsent))

    def _new_socket(self, family: int) -> _socket.socket:
        try:
            sock = _socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            self.pool.close_parked()  # idle connections can be opened again
            sock = _socket.socket(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if SO_TIMESTAMPNS is not None:
            sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        return sock

    def _connect_failed(self, code: int) -> None:
        self._release()
        if self.try_next_endpoint():
            return
        failure = connect_failure(code)
        self._fail(failure.kind, failure.text)

    def try_next_endpoint(self) -> bool:
        """Connect to the next address of this name instead; False if all have been tried."""
        if self._endpoints_tried >= len(self.address.endpoints):
            return False
        self._release()
        self._endpoint = (self._endpoint + 1) % len(self.address.endpoints)
        self._connect()
        return True

    def _write(self) -> None:
        assert self._sock is not None
        assert self.exchange is not None
        try:
            if self.opening.connected_ns is None:
                if not _is_connected(self._sock):
                    return
                self._connected(time.monotonic_ns())
            if self._unsent:
                # Before it is sent: what is sent may wake the server on this core, which delays a
                # later look at the clock, and latencies would be counted from there.
                now_ns = time.monotonic_ns()
                count = self._sock.sendmsg(_at_most(self._unsent, MOST_WRITTEN))
                if self.exchange.stamps.first_write_ns is None:
                    self.exchange.stamps.first_write_ns = now_ns
                while self._unsent and count >= len(self._unsent[0]):
                    count -= len(self._unsent.pop(0))
                if count:
                    self._unsent[0] = self._unsent[0][count:]
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno in (errno.EPIPE, errno.ECONNRESET):
                self._unsent.clear()  # an early answer may still be waiting to be read
                self.pool.watch(self, writable=False)
            else:
                self._fail(FailureKind.RESET, f"sending failed: {error.strerror}")
            return
        if (
            self.state == OPEN
            and self.exchange.stamps.sent_ns is None
            and not self._unsent
        ):
            self.read_ns = time.monotonic_ns()
            self.exchange.on_sent(self.read_ns)

    def _connected(self, at: int) -> None:
        assert self._sock is not None
        self.opening.connected_ns = at
        self.opening.handshake_ns = handshake_ns(self._sock)
        self.pool.good_endpoint[self.address] = self._endpoint
        self.pool.receive(self)
        if self._tls is None:
            self.state = OPEN

    def on_writable(self) -> None:
        """The loop saw the socket writable (or in error) while bytes are left to send."""
        assert self._sock is not None
        if self.opening.connected_ns is None:
            code = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self._connect_failed(code)
                return
            self._connected(time.monotonic_ns())
        self._write()
        if self.state != CLOSED and not self._unsent:
            self.pool.watch(self, writable=False)

    # ------------------------------------------------------------------ coming in

    def keep_reads(self, slab: Slab) -> None:
        """The answer streams: keep its reads in `slab`, unless they are encrypted."""
        if self._tls is None and self._sock is not None:
            self.pool.keep_reads(self, self._sock, slab)

    def slab_is_full(self) -> None:
        """See `Listener.slab_is_full`."""
        if self.exchange is not None:
            self.exchange.slab_is_full()

    def on_readable(
        self, buffer: bytearray, view: memoryview, batch: BatchClock
    ) -> None:
        """Read the socket; again after a full buffer."""
        for _ in _READS:
            if self.exchange is None or self._sock is None:
                if (
                    self._sock is not None
                ):  # parked: bytes or an end now make it unusable
                    self.close()
                return
            try:
                count, ancillary, _, _ = self._sock.recvmsg_into(
                    (buffer,), ANCILLARY_BYTES
                )
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self.broke(error)
                return
            self.received(view[:count], ancillary, batch)
            if count < len(buffer):
                return

    def received(
        self,
        data: bytes | memoryview,
        ancillary: list[tuple[int, int, bytes]],
        batch: BatchClock,
    ) -> None:
        """A read of the socket: nothing if the server has ended the connection."""
        if self.exchange is None:
            return
        if not data:
            self.ended()
        elif ancillary:
            self.take(
                data, batch.arrival_ns(ancillary[0][2], self.read_ns), is_stamped=True
            )
        else:
            self.take(data, time.monotonic_ns(), is_stamped=False)

    def take(self, data: bytes | memoryview, at: int, *, is_stamped: bool) -> None:
        """Bytes that arrived at `at`, by the kernel's stamp or without one."""
        exchange = self.exchange
        assert exchange is not None
        if not is_stamped:
            exchange.counts.user_space_reads += 1
        exchange.counts.reads += 1
        self.read_ns = at
        if self._tls is None:
            exchange.take(data, at)
        else:
            self._take_encrypted(self._tls, exchange, data, at)

    def keep(self, slab: Slab, reads: Sequence[bytes], stamps: Sequence[int]) -> None:
        """Keep reads that a thread received, to be understood later."""
        exchange = self.exchange
        assert exchange is not None
        for data, stamp in zip(reads, stamps, strict=True):
            if stamp < 0:
                exchange.counts.user_space_reads += 1
            self.read_ns = max(abs(stamp), self.read_ns)
            slab.keep(data, self.read_ns)

    def _take_encrypted(
        self, tls: TlsLayer, exchange: Listener, data: bytes | memoryview, at: int
    ) -> None:
        try:
            reply, plain = tls.received(data)
            if self.state == OPENING and tls.ready:
                self.opening.secured_ns = at
                self.opening.tls_resumed = tls.resumed
                self.state = OPEN
                reply += tls.encrypt(b"".join(self._outgoing))
        except ssl.SSLError as error:
            self._fail(FailureKind.TLS, tls_text(error))
            return
        if reply:
            self._unsent.append(memoryview(reply))
            self._write()
            if self._unsent and self.state != CLOSED:
                self.pool.watch(self, writable=True)
        if plain and self.exchange is exchange:
            exchange.take(memoryview(plain), at)

    def broke(self, error: OSError) -> None:
        """Reading failed."""
        assert self.exchange is not None
        if self.opening.connected_ns is None:
            self._connect_failed(error.errno or 0)
        elif self.state == OPENING:
            self._fail(
                FailureKind.TLS,
                "the server reset the connection during the TLS handshake",
            )
        else:
            self.exchange.connection_lost(
                FailureKind.RESET, "connection reset by the server", self.read_ns
            )

    def ended(self) -> None:
        """The server has ended the connection."""
        assert self.exchange is not None
        if self.state == OPENING:
            self._fail(
                FailureKind.TLS,
                "the server closed the connection during the TLS handshake",
            )
        else:
            self.exchange.connection_lost(
                FailureKind.CUT_OFF, "the server closed the connection", self.read_ns
            )

    # ------------------------------------------------------------------ the end

    def _fail(self, kind: FailureKind, text: str) -> None:
        assert self.exchange is not None
        self.exchange.fail(kind, text)

    @property
    def is_quiet(self) -> bool:
        """Whether this parked connection has received nothing, not even its end. (The loop may not
        have seen it yet.)"""
        try:
            return (
                self._sock is not None and self._sock.recv(1, socket.MSG_PEEK) is None
            )
        except BlockingIOError:
            return True
        except OSError:
            return False

    def park(self) -> None:
        """The exchange is over; keep the connection open for another."""
        self.exchange = None
        self.exchanges += 1

    def close(self) -> None:
        """Close the socket in any state. May be called again."""
        if self.state != CLOSED:
            if self._tls is not None and self._tls.ready:
                self.pool.keep_session(self.address, self._tls)
            self.state = CLOSED
            self.exchange = None
            self._unsent.clear()
            self._release()

    def _release(self) -> None:
        if self._sock is not None:
            self.pool.unregister(self)
            self._sock.close()
            self._sock = None
            self.fd = -1
