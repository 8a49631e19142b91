"""A server with a known schedule, only for tests and benchmarks of timing and of faults.

It serves the OpenAI stream (`/v1/chat/completions`, `/v1/completions`, `/v1/models`, `/health`):
the first token T after the request gets a slot, then one every I, n tokens in all. A request is
received when the kernel has its last byte; it gets a slot then, or when one becomes free, first
come first served. Every token is logged with the instant just before it is passed to the kernel.
All processes of a machine share the monotonic clock, so a client's times can be compared with the
log.

One thread, one loop: sleep until a token is scheduled or a socket is ready, send, log. `Schedule`
sets the behaviour of all requests, a field `simulate` in the body that of one, for example
`{"simulate": {"tokens": 3, "fault": "cut", "fault_after": 2}}`.
"""

from __future__ import annotations

import heapq
import random
import select
import socket
import struct
import time
from collections import deque
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, BinaryIO

import httptools
import msgspec

from llama_load.ground.clock import (
    ANCILLARY_BYTES,
    SO_TIMESTAMPNS,
    kernel_stamp_ns,
    wall_minus_mono_ns,
)
from llama_load.ground.errors import UsageError
from llama_load.servers.serving.openai_stream import (
    MODEL,
    OLD_STREAM_HEAD,
    STREAM_HEAD,
    event,
    frame,
    unframed,
)
from llama_load.servers.serving.simulated_requests import (
    AnswerStream,
    ClientConnection,
    prompt_tokens,
)
from llama_load.servers.serving.simulated_schedule import Schedule

BACKLOG = 4096
LONGEST_WAIT_S = 0.2
FAULTS_AFTER_TOKENS = ("cut", "reset", "stall", "error", "garbage")
BAD_REQUEST = (msgspec.DecodeError, TypeError, ValueError, AttributeError, UsageError)


class SimulatedServer:
    """The server. `serve()` runs until `stop()` is called, for example by a signal handler."""

    def __init__(
        self,
        schedule: Schedule,
        host: str = "127.0.0.1",
        port: int = 0,
        log: Path | None = None,
    ) -> None:
        self.schedule = schedule
        self._listener = socket.create_server((host, port), backlog=BACKLOG)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._log: BinaryIO | None = log.open("wb") if log else None
        self._random = random.Random(schedule.seed)
        self._epoll = select.epoll()
        self._epoll.register(self._listener.fileno(), select.EPOLLIN)
        self._connections: dict[int, ClientConnection] = {}
        self._due: list[tuple[int, int, int, AnswerStream]] = []
        self._queue: deque[AnswerStream] = deque()
        # a heap: the instant at which each free slot became free
        self._free_ns = [0] * schedule.slots
        self._stall_ns = (0, 0)  # beginning and end
        self._stalled = False
        self._count = 0
        self._sequence = 0
        self._running = True

    def stop(self) -> None:
        """End `serve` at its next iteration."""
        self._running = False

    def serve(self) -> None:
        """Accept, answer and log until stopped."""
        epoll_fd = self._epoll.fileno()
        due = self._due
        while self._running:
            wait_s = self._wait_s()
            # epoll's own timeout is in whole milliseconds; select's is in microseconds.
            if wait_s > 0:
                select.select([epoll_fd], [], [], wait_s)

            now = self._now()
            while due and due[0][0] <= now and not self._stalled:
                _, _, index, stream = heapq.heappop(due)
                self._send_token(stream, index)
                now = self._now()
            self._serve_sockets()
        if self._log:
            self._log.close()

    def _wait_s(self) -> float:
        """The time until the next token is due, or the stall ends; 0.2 s at most."""
        if self._stalled:
            until_ns = self._stall_ns[1]
        elif self._due:
            until_ns = self._due[0][0]
        else:
            return LONGEST_WAIT_S
        return min(LONGEST_WAIT_S, (until_ns - time.monotonic_ns()) / 1e9)

    def _now(self) -> int:
        """The instant (monotonic, ns). At the end of a stall it sends what was delayed."""
        now = time.monotonic_ns()
        begin, end = self._stall_ns
        was_stalled = self._stalled
        self._stalled = begin <= now < end

        if was_stalled and not self._stalled:
            for connection in list(self._connections.values()):
                if connection.pending:
                    self._write(connection, b"")
        return now

    # ------------------------------------------------------------------ sockets

    def _serve_sockets(self) -> None:
        offset = None
        for fd, mask in self._epoll.poll(0):
            if fd == self._listener.fileno():
                self._accept()
                continue
            connection = self._connections.get(fd)
            if connection is None:
                continue
            if mask & select.EPOLLOUT and connection.pending:
                self._write(connection, b"")
            if mask & ~select.EPOLLOUT:
                if offset is None:
                    offset = wall_minus_mono_ns()
                self._read(connection, offset)

    def _accept(self) -> None:
        for _ in range(64):
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if SO_TIMESTAMPNS is not None:
                sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            self._connections[sock.fileno()] = ClientConnection(sock, self._on_request)
            self._epoll.register(sock.fileno(), select.EPOLLIN)

    def _read(self, connection: ClientConnection, offset: int) -> None:
        try:
            data, ancillary, _, _ = connection.sock.recvmsg(1 << 20, ANCILLARY_BYTES)
        except BlockingIOError:
            return
        except OSError:
            self._close(connection)
            return
        if not data:
            self._close(connection)
            return

        stamp = kernel_stamp_ns(ancillary)
        connection.read_ns = time.monotonic_ns() if stamp is None else stamp - offset
        try:
            connection.parser.feed_data(data)
        except httptools.HttpParserError:
            self._close(connection)

    def _write(self, connection: ClientConnection, data: bytes) -> None:
        flushing = bool(connection.pending)
        connection.pending += data
        if self._stalled:
            return
        try:
            sent = connection.sock.send(connection.pending)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._close(connection)
            return
        del connection.pending[:sent]
        if connection.closing and not connection.pending:
            self._close(connection)
            return

        if connection.pending:
            self._epoll.modify(
                connection.sock.fileno(), select.EPOLLIN | select.EPOLLOUT
            )
        elif flushing:
            self._epoll.modify(connection.sock.fileno(), select.EPOLLIN)

    def _write_chunks(self, connection: ClientConnection, chunks: bytes) -> None:
        self._write(connection, unframed(chunks) if connection.old else chunks)

    def _close_when_sent(self, connection: ClientConnection) -> None:
        if connection.pending:
            connection.closing = True
        else:
            self._close(connection)

    def _close(self, connection: ClientConnection) -> None:
        if self._connections.pop(connection.sock.fileno(), None) is not None:
            self._epoll.unregister(connection.sock.fileno())
            connection.sock.close()
            if connection.stream is not None:
                self._end(connection.stream, "client closed")

    # ------------------------------------------------------------------ requests

    def _on_request(self, connection: ClientConnection) -> None:
        """A complete request was received on this connection."""
        path = connection.path.decode("latin-1").partition("?")[0]
        if path == "/health":
            self._answer(connection, 200, {"status": "ok"})
        elif path == "/v1/models":
            models = [{"id": MODEL, "object": "model"}]
            self._answer(connection, 200, {"object": "list", "data": models})
        elif path in ("/v1/chat/completions", "/v1/completions"):
            try:
                body = msgspec.json.decode(connection.body)
                self._open_stream(connection, body, chat=path == "/v1/chat/completions")
            except BAD_REQUEST as error:
                self._refuse(connection, 400, f"bad request: {error}")
        else:
            self._refuse(connection, 404, f"no such path: {path}")

    def _open_stream(
        self, connection: ClientConnection, body: dict[str, Any], *, chat: bool
    ) -> None:
        schedule = self.schedule
        asked = body.get("simulate")
        if asked:
            known = {item.name for item in fields(Schedule)}
            settings = {name: value for name, value in asked.items() if name in known}
            schedule = replace(schedule, **settings)

        self._count += 1
        if self._count == 1:
            self._stall_ns = self.schedule.stall_ns(connection.read_ns)
            self._now()
        fault = schedule.fault if self._count % schedule.fault_every == 0 else ""
        if fault == "status":
            error = {
                "code": schedule.status,
                "message": "a simulated failure",
                "type": "server_error",
            }
            self._answer(connection, schedule.status, {"error": error})
            return
        max_tokens = int(body.get("max_tokens") or 0)
        total = (
            0
            if fault == "empty"
            else int(schedule.answer_tokens(self._count, max_tokens))
        )
        stream = AnswerStream(
            connection=connection,
            schedule=schedule,
            number=self._count,
            request_id=connection.headers.get(b"x-request-id", b"").decode("latin-1"),
            chat=chat,
            include_usage=bool((body.get("stream_options") or {}).get("include_usage")),
            total=total,
            finish=schedule.finish_reason(total, max_tokens),
            fault=fault,
            body_bytes=len(connection.body),
            prompt_tokens=prompt_tokens(body),
            received_ns=connection.read_ns,
        )
        connection.stream = stream
        self._queue.append(stream)
        self._start_waiting()

    def _start_waiting(self) -> None:
        while self._queue and (self._free_ns or not self.schedule.slots):
            stream = self._queue.popleft()
            if stream.connection.stream is stream:  # its client is still connected
                self._start(stream)

    def _start(self, stream: AnswerStream) -> None:
        """The request gets a slot: its headers are sent and its tokens scheduled."""
        # A request may be read after a slot became free that was in use when the request was
        # received.
        free_ns = heapq.heappop(self._free_ns) if self.schedule.slots else 0
        stream.started_ns = max(stream.received_ns, free_ns)
        stream.schedule_tokens(self._random)
        self._write(
            stream.connection, OLD_STREAM_HEAD if stream.connection.old else STREAM_HEAD
        )
        self._plan(stream, 0)

    def _plan(self, stream: AnswerStream, index: int) -> None:
        """Schedule the piece that begins with token `index` at the instant of its last token."""
        last = min(index + stream.schedule.merge, len(stream.offsets_ns)) - 1
        due_ns = stream.started_ns + stream.offsets_ns[last]
        self._sequence += 1
        heapq.heappush(self._due, (due_ns, self._sequence, index, stream))

    def _send_token(self, stream: AnswerStream, index: int) -> None:
        connection = stream.connection
        if connection.stream is not stream:
            return
        if stream.fault and self._fault(stream, index):
            return

        count = min(stream.schedule.merge, stream.total - index)
        is_last = index + count >= stream.total
        piece = stream.piece(index, count)
        now = time.monotonic_ns()
        stream.sent_ns += [now] * count
        self._write_chunks(connection, piece)

        if is_last:
            self._end(stream, stream.fault or "ok")
        elif connection.stream is stream:
            self._plan(stream, index + count)

    def _fault(self, stream: AnswerStream, index: int) -> bool:
        """Apply the stream's fault if it is time. True if the stream ends."""
        if (
            stream.fault not in FAULTS_AFTER_TOKENS
            or index < stream.schedule.fault_after
        ):
            return False

        connection = stream.connection
        if stream.fault == "stall":
            return True
        if stream.fault == "garbage":
            stream.fault = ""
            self._write_chunks(connection, frame(b'data: {"choices": [{"delta"\n\n'))
            return False
        if stream.fault == "error":
            error = {
                "code": 500,
                "message": "a simulated failure",
                "type": "server_error",
            }
            self._write_chunks(connection, event({"error": error}) + b"0\r\n\r\n")
            self._end(stream, "error")
            return True
        if stream.fault == "reset":
            linger = struct.pack("ii", 1, 0)  # on, for 0 s: closing sends a reset
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._close(connection)
        return True

    def _end(self, stream: AnswerStream, outcome: str) -> None:
        connection = stream.connection
        if (
            connection.stream is not stream
        ):  # the client disconnected while its last token was sent
            return
        connection.stream = None
        ended_ns = time.monotonic_ns()
        if self._log:
            entry = {
                "number": stream.number,
                "request_id": stream.request_id,
                "outcome": outcome,
                "body_bytes": stream.body_bytes,
                "received_mono_ns": stream.received_ns,
                "started_mono_ns": stream.started_ns,
                "sent_mono_ns": stream.sent_ns,
                "ended_mono_ns": ended_ns,
            }
            self._log.write(msgspec.json.encode(entry) + b"\n")
            self._log.flush()

        if stream.started_ns and self.schedule.slots:
            heapq.heappush(self._free_ns, ended_ns)
            self._start_waiting()
        if connection.close and outcome != "client closed":
            self._close_when_sent(connection)

    def _refuse(self, connection: ClientConnection, status: int, why: str) -> None:
        self._answer(connection, status, {"error": {"code": status, "message": why}})

    def _answer(self, connection: ClientConnection, status: int, value: object) -> None:
        body = msgspec.json.encode(value)
        then = "close" if connection.close else "keep-alive"
        head = (
            f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: "
            f"{len(body)}\r\nConnection: {then}\r\n\r\n"
        )
        self._write(connection, head.encode() + body)
        if connection.close:
            self._close_when_sent(connection)


def read_log(path: Path) -> list[dict[str, Any]]:
    """The server's log, a dict per request.

    `request_id`, `body_bytes`, `received_mono_ns`, `sent_mono_ns` (list), `outcome`…
    """
    lines = path.read_bytes().splitlines()
    return [msgspec.json.decode(line) for line in lines]
