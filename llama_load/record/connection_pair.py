"""A client's connection, and the one to the server that belongs to it."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable

from llama_load.record.exchange_copies import ExchangeCopy
from llama_load.record.http_framing import Head, MessageReader
from llama_load.servers.tls import TlsLayer

Handler = Callable[[int], None]


def _ignore(_: int) -> None:
    """Before a connection is there."""


class ConnectionPair:
    """What both sides have sent, what is left to send, and which requests are open."""

    def __init__(
        self, client: socket.socket, head_by_s: float, *, drops_additions: bool
    ) -> None:
        self.client = client
        self.on_client: Handler = _ignore
        self.on_server: Handler = _ignore
        self.server: socket.socket | None = None
        self.tls: TlsLayer | None = None
        self.is_connected = False
        self.endpoints_left: list[tuple[int, tuple[object, ...]]] = []
        # A client that does not send the rest of a head or of a body, or a server that does not
        # connect, until then.
        self.rest_by_s: float | None = head_by_s
        self.connect_by_s: float | None = None
        # A client that takes nothing of what waits for it, until then.
        self.reads_by_s: float | None = None
        # What the client has sent and nobody has looked at, and when it came: requests are taken
        # one by one, between those of others.
        self.unread = b""
        self.unread_came_ns = 0
        self.to_server = bytearray()
        self.plain = bytearray()  # to the server, once its TLS handshake is done
        self.to_client = bytearray()
        self.client_ended = False
        self.server_ended = False
        self.end_to_server_is_sent = False
        self.end_to_client_is_sent = False
        self.server_takes_nothing = False
        self.resets_when_sent = False
        # The relay has answered itself: what the client still sends is thrown away.
        self.discards = False
        self.requests = MessageReader(
            reads_answers=False, drops_additions=drops_additions
        )
        self.answers = MessageReader(reads_answers=True)
        self.answers_are_read = True
        # The oldest first, which is being answered.
        self.open: deque[ExchangeCopy] = deque()
        self.asking: ExchangeCopy | None = None  # its request is not complete
        self.request_came_ns: int | None = None
        # What came before these instants waited for the other side, not for the relay.
        self.client_is_slow = False
        self.server_is_slow = False
        self.client_held_until_ns = 0
        self.server_held_until_ns = 0

    def send_to_server(self, data: bytes) -> None:
        """Queue what a client has sent."""
        if self.server_takes_nothing:
            return
        if self.tls is None:
            self.to_server += data
        elif self.tls.ready:
            self.to_server += self.tls.encrypt(data)
        else:
            self.plain += data

    def ask(self, copy: ExchangeCopy, head: Head) -> None:
        """A request has begun, which is answered after those that are open."""
        self.open.append(copy)
        self.asking = copy
        self.answers.without_body.append(head.method == "HEAD")
