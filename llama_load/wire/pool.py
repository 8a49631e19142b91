"""The connections of one process: those that are open, those that wait for their next use, and what is known of addresses."""

from __future__ import annotations

import ssl

from llama_load.wire.address import Address
from llama_load.wire.connection import Connection
from llama_load.wire.poller import Poller
from llama_load.wire.tls import TlsLayer, TlsOptions


class ConnectionPool:
    """Opens connections and keeps them for their next use. `good_endpoint` says which of a name's addresses answered last."""

    def __init__(self, poller: Poller) -> None:
        self.poller = poller
        self.record_gap = poller.record_gap
        self.connections: dict[int, Connection] = {}  # by file descriptor, all that are open
        self.good_endpoint: dict[Address, int] = {}
        self._parked: dict[Address, list[Connection]] = {}
        self._tls_options = TlsOptions()
        self._tls_context: ssl.SSLContext | None = None
        self._tls_sessions: dict[Address, ssl.SSLSession] = {}

    # ------------------------------------------------------------------ for exchanges

    def new(self, address: Address) -> Connection:
        """A connection that opens with the first request that it is given."""
        return Connection(self, address)

    def parked(self, address: Address) -> Connection | None:
        """An open connection to `address` that nobody uses, the one used last; None if there is none."""
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
        self.poller.watch(connection.fd, writable=False)
        self._parked.setdefault(connection.address, []).append(connection)

    def mark_streaming(self, connection: Connection | None) -> None:
        """The first progress came: from now on the connection may be read in batches."""
        if connection is not None and connection.all_sent:
            self.poller.stream(connection.fd)

    def close_parked(self) -> None:
        """Close the connections that wait for their next use."""
        for connections in self._parked.values():
            for connection in tuple(connections):
                connection.close()
        self._parked.clear()

    def trust(self, options: TlsOptions) -> None:
        """Whom https:// connections trust from now on. Loading the system's authorities takes 40 ms, so not before it is needed."""
        self._tls_options, self._tls_context = options, None
        self._tls_sessions.clear()
        self.close_parked()

    # ------------------------------------------------------------------ for connections: see `connection.Home`

    def register(self, connection: Connection, *, writable: bool) -> None:
        """A new socket is to be watched."""
        self.connections[connection.fd] = connection
        self.poller.watch(connection.fd, writable=writable)

    def unregister(self, connection: Connection) -> None:
        """The connection's socket is about to be closed."""
        if self.connections.pop(connection.fd, None) is not None:
            self.poller.forget(connection.fd)
        waiting = self._parked.get(connection.address)
        if waiting and connection in waiting:
            waiting.remove(connection)

    def watch(self, connection: Connection, *, writable: bool) -> None:
        """Watch a socket that is open: for what comes, and until it can be written, if that is asked."""
        if connection.fd in self.connections:
            self.poller.watch(connection.fd, writable=writable)

    def tls_layer(self, address: Address) -> TlsLayer:
        """A fresh TLS connection's state, which will try to resume the last session with this address."""
        if self._tls_context is None:
            self._tls_context = self._tls_options.context()
        return TlsLayer(self._tls_context, address.host, self._tls_sessions.get(address))

    def keep_session(self, address: Address, tls: TlsLayer) -> None:
        """Remember the session for the next connection: a resumed handshake spares the server its signature."""
        session = tls.session
        if session is not None and session.has_ticket:
            self._tls_sessions[address] = session
