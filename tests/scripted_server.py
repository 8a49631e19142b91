"""A loopback server that sends scripted bytes: the ground truth for what the wire must make of
them."""

from __future__ import annotations

import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

# bytes to send, seconds to wait, or "reset" / "hold" / "read" (until something comes) / "taken"
# (until the client has read all, on IPv4: what a busy one has not read comes together with what
# follows)
Step = bytes | float | str


@dataclass
class ScriptedServer:
    """Answers every request with the same steps, after it has read it whole; keeps what it was
    sent.

    A connection is closed after `per_connection` answers.
    """

    steps: Sequence[Step]
    read_request: bool = True
    requests: list[bytes] = field(default_factory=list)
    tls: ssl.SSLContext | None = None
    host: str = "127.0.0.1"
    # with TLS: whether each connection resumed a session
    resumed: list[bool] = field(default_factory=list)
    per_connection: int = 1
    connections: int = 0

    def __enter__(self) -> ScriptedServer:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        self._listener = socket.create_server((self.host, 0), family=family, backlog=64)
        self.port: int = self._listener.getsockname()[1]
        name = f"[{self.host}]" if ":" in self.host else self.host
        self.url = f"{'https' if self.tls else 'http'}://{name}:{self.port}"
        self._over = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        # wakes the thread in accept, which would keep the port open
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(
                target=self._answer, args=(connection,), daemon=True
            ).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                if self.tls is not None:
                    connection = self.tls.wrap_socket(connection, server_side=True)
                    self.resumed.append(bool(connection.session_reused))
                for _ in range(self.per_connection):
                    if self.read_request:
                        self.requests.append(_whole_request(connection))
                    self._play(connection)
            except OSError:
                pass

    def _play(self, connection: socket.socket) -> None:
        for step in self.steps:
            if isinstance(step, bytes):
                connection.sendall(step)
            elif step == "hold":
                self._over.wait(30)
            elif step == "read":
                connection.recv(1)
            elif step == "taken":
                while not self._over.is_set() and _unread(connection):
                    time.sleep(0.001)  # between two looks
            elif step == "reset":
                connection.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
            else:
                time.sleep(float(step))  # a pause of the script


def _unread(connection: socket.socket) -> bool:
    """Whether bytes wait at the other end of an IPv4 connection over loopback, where Linux says."""
    if sys.platform != "linux":
        return False
    own = connection.getsockname()[1]
    other = connection.getpeername()[1]
    for row in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, _, queues, *_ = row.split()
        ports = (int(local.partition(":")[2], 16), int(remote.partition(":")[2], 16))
        if ports == (other, own):
            return int(queues.partition(":")[2], 16) > 0
    return False


def _whole_request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return data
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [
        int(line.split(b":")[1])
        for line in head.lower().split(b"\r\n")
        if line.startswith(b"content-length")
    ]
    length = lengths[0] if lengths else 0
    while len(body) < length:
        piece = connection.recv(65536)
        if not piece:
            break
        body += piece
    return head + b"\r\n\r\n" + body


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(text: str) -> bytes:
    return chunk(b"data: " + text.encode() + b"\n\n")


def token(text: str = "x") -> bytes:
    return event(
        '{"choices":[{"index":0,"finish_reason":null,"delta":{"content":"%s"}}]}' % text
    )


FINISH = event('{"choices":[{"index":0,"finish_reason":"stop","delta":{}}]}')
DONE = event("[DONE]")
GOOD_STREAM: tuple[bytes, ...] = (STREAM, token("a"), token("b"), FINISH, DONE, END)
