"""A relay in a thread, and servers of raw bytes behind it."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from llama_load.record.passed_exchange import (
    LENGTH_BYTES,
    Message,
    PassedExchange,
    RelayFigures,
    decoded,
)
from llama_load.record.relay import Relay
from llama_load.servers.address import parse_url

RESET = struct.pack("ii", 1, 0)
# A thread that hangs is found as well; one that only waits for a core on a busy machine is none.
PATIENT_S = 300


@dataclass
class Relayed:
    """A relay that runs, and what it has handed over (complete once it has ended)."""

    relay: Relay
    messages: list[Message] = field(default_factory=list)

    @property
    def port(self) -> int:
        return self.relay.port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def exchanges(self) -> list[PassedExchange]:
        found = [each for each in self.messages if isinstance(each, PassedExchange)]
        return sorted(found, key=lambda each: each.number)

    @property
    def figures(self) -> RelayFigures:
        return next(each for each in self.messages if isinstance(each, RelayFigures))


@contextmanager
def relayed(url: str, **settings: Any) -> Iterator[Relayed]:
    """A relay to the server at this URL."""
    reads, writes = os.pipe()
    relay = Relay(parse_url(url).resolved(), "127.0.0.1", 0, writes, **settings)
    running = Relayed(relay)

    def read() -> None:
        with os.fdopen(reads, "rb") as pipe:
            while length := pipe.read(LENGTH_BYTES):
                body = pipe.read(int.from_bytes(length, "big"))
                running.messages.append(decoded(body))

    reader = threading.Thread(target=read, daemon=True)
    server = threading.Thread(target=relay.serve, daemon=True)
    reader.start()
    server.start()
    try:
        yield running
    finally:
        relay.stop()
        server.join(PATIENT_S)
        assert not server.is_alive()
        os.close(writes)
        reader.join(PATIENT_S)


class RawServer:
    """Listens on loopback; every connection is served by `serve(socket)` in a thread."""

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self._serve = serve
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.settimeout(20)
            threading.Thread(target=self._one, args=(sock,), daemon=True).start()

    def _one(self, sock: socket.socket) -> None:
        with sock:
            try:
                self._serve(sock)
            except OSError:
                pass

    def __enter__(self) -> RawServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()


def connected(port: int) -> socket.socket:
    """A client's connection."""
    client = socket.create_connection(("127.0.0.1", port), 20)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def received(sock: socket.socket, size: int) -> bytes:
    """So many bytes, or fewer if the stream ends before."""
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        if not piece:
            break
        data += piece
    return data
