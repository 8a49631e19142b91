"""The connections of one process: open and parked ones, and per address the last good endpoint and
TLS session."""

from __future__ import annotations

import _socket
import ssl
from collections.abc import Callable

from llama_load.loadgen.wire.connection import Connection
from llama_load.loadgen.wire.poller import Poller
from llama_load.loadgen.wire.slab import Slab
from llama_load.servers.address import Address
from llama_load.servers.tls import TlsLayer, TlsOptions


class ConnectionPool:
    """Opens connections and keeps them for reuse. `understand_later` takes an exchange whose slab
    waits for its turn. `good_endpoint`: the index of a name's address that was connected last."""

    def __init__(self, poller: Poller, understand_later: Callable[..., None]) -> None:
        self.poller = poller
        self.understand_later = understand_later
        self.record_gap = poller.record_gap
        self.connections: dict[
            int, Connection
        ] = {}  # by file descriptor, all that are open
        # those whose reads are kept
        self.streams: dict[int, tuple[Connection, _socket.socket, Slab]] = {}
        self.good_endpoint: dict[Address, int] = {}
        self._parked: dict[Address, list[Connection]] = {}
        self._tls_options = TlsOptions()
        self._tls_context: ssl.SSLContext | None = None
        self._tls_sessions: dict[Address, ssl.SSLSession] = {}

    # ------------------------------------------------------------------ for exchanges

    def new(self, address: Address) -> Connection:
        """A connection that opens with its first request."""
        return Connection(self, address)

    def parked(self, address: Address) -> Connection | None:
        """The most recently used idle connection to `address`; None if there is none."""
        waiting = self._parked.get(address)
        while waiting:
            connection = waiting.pop()
            if connection.is_quiet:
                return connection
            connection.close()
        return None

    def park(self, connection: Connection) -> None:
        """Keep the connection for the next exchange with its address."""
        connection.park()
        self.streams.pop(connection.fd, None)
        if not self.poller.park(connection.fd):
            connection.close()
            return
        self._parked.setdefault(connection.address, []).append(connection)

    def mark_streaming(self, connection: Connection | None) -> None:
        """After the first progress, allow reading the connection in batches."""
        if connection is not None and connection.all_sent:
            self.poller.stream(connection.fd)

    def hold(self, connection: Connection | None) -> None:
        """Read no more of the connection before `resume`."""
        if connection is not None:
            self.poller.hold(connection.fd)

    def resume(self, connection: Connection | None) -> None:
        """Go on to read a connection that streams."""
        if connection is not None and connection.fd in self.connections:
            self.poller.watch(connection.fd, writable=not connection.all_sent)
            self.mark_streaming(connection)

    def close_parked(self) -> None:
        """Close the idle connections."""
        for connections in self._parked.values():
            for connection in tuple(connections):
                connection.close()
        self._parked.clear()

    def trust(self, options: TlsOptions) -> None:
        """Set the TLS options of new connections. Loading the system's CAs takes 40 ms, so it is
        done on first use."""
        self._tls_options = options
        self._tls_context = None
        self._tls_sessions.clear()
        self.close_parked()

    # ------------------------------------------------------------------ for connections: see
    # `connection.Home`

    def register(self, connection: Connection) -> None:
        """A new socket, not connected yet."""
        self.connections[connection.fd] = connection

    def receive(self, connection: Connection) -> None:
        """The connection is about to send: bytes may come."""
        self.poller.receive(connection.fd)

    def unregister(self, connection: Connection) -> None:
        """Stop watching the connection's socket, which is about to be closed."""
        self.streams.pop(connection.fd, None)
        if self.connections.pop(connection.fd, None) is not None:
            self.poller.forget(connection.fd)
        waiting = self._parked.get(connection.address)
        if waiting and connection in waiting:
            waiting.remove(connection)

    def watch(self, connection: Connection, *, writable: bool) -> None:
        """Watch an open socket until it is readable, or (`writable`) writable."""
        if connection.fd in self.connections:
            self.poller.watch(connection.fd, writable=writable)

    def keep_reads(
        self, connection: Connection, sock: _socket.socket, slab: Slab
    ) -> None:
        """From now on keep the connection's reads of whole events in `slab`."""
        self.streams[connection.fd] = connection, sock, slab
        self.poller.keep(connection.fd)

    def gather(self, connection: Connection | None) -> None:
        """Move what was received of a stream, and not reported yet, into its slab."""
        stream = None if connection is None else self.streams.get(connection.fd)
        if stream is None:
            return
        connection, _, slab = stream
        received = self.poller.gather(connection.fd)
        if received is not None:
            connection.keep(slab, received.reads, received.stamps)

    def gather_silent(self, before_ns: int) -> None:
        """`gather` the streams of which nothing has come since then."""
        for fd in self.poller.silent(before_ns):
            self.gather(self.connections.get(fd))

    def tls_layer(self, address: Address) -> TlsLayer:
        """The state of a new TLS connection, which tries to resume the last session with this
        address."""
        if self._tls_context is None:
            self._tls_context = self._tls_options.context()
        return TlsLayer(
            self._tls_context, address.host, self._tls_sessions.get(address)
        )

    def keep_session(self, address: Address, tls: TlsLayer) -> None:
        """Keep the session for the next connection: a resumed handshake saves the server a
        signature."""
        session = tls.session
        if session is not None and session.has_ticket:
            self._tls_sessions[address] = session
