"""A server with a known schedule, only for tests and benchmarks of timing and of faults.

It serves the OpenAI stream (`/v1/chat/completions`, `/v1/completions`, `/v1/models`, `/health`): the first token T after the
request gets a slot, then one every I, n tokens in all. A request is received when the kernel has its last byte; it gets a slot
then, or when one becomes free, first come first served. Every token is logged with the instant just before it is passed to the
kernel. All processes of a machine share the monotonic clock, so a client's times can be compared with the log.

One thread, one loop: sleep until a token is scheduled or a socket is ready, send, log. `Schedule` sets the behaviour of all
requests, a field `simulate` in the body that of one, for example `{"simulate": {"tokens": 3, "fault": "cut", "fault_after": 2}}`.
"""

from __future__ import annotations

import heapq
import random
import select
import socket
import struct
import time
from collections import deque
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, BinaryIO

import httptools
import msgspec

from llama_load.errors import UsageError
from llama_load.serving.openai_stream import (
    MODEL,
    OLD_STREAM_HEAD,
    ROLE,
    STREAM_HEAD,
    TOKEN,
    event,
    first_token,
    frame,
    tail,
    unframed,
)
from llama_load.serving.simulated_schedule import Schedule
from llama_load.units import s_to_ns
from llama_load.wire.clock import ANCILLARY_BYTES, SO_TIMESTAMPNS, kernel_stamp_ns, wall_minus_mono_ns
from llama_load.workloads.counting import EstimatedCounter

BACKLOG = 4096
# Of the chat template that the server pretends to have.
TEMPLATE_TOKENS = 16


@dataclass(slots=True, eq=False)
class _Stream:
    """One request being answered."""

    connection: _Connection
    schedule: Schedule
    number: int
    request_id: str
    chat: bool
    include_usage: bool
    total: int
    finish: str
    fault: str
    body_bytes: int
    prompt_tokens: int
    received_ns: int
    started_ns: int = 0
    offsets_ns: list[int] = field(default_factory=list)
    sent_ns: list[int] = field(default_factory=list)


class _Connection:
    """A client's connection and the request parsed on it (httptools calls the on_… methods)."""

    __slots__ = ("body", "close", "closing", "headers", "old", "parser", "path", "pending", "read_ns", "server", "sock", "stream")

    def __init__(self, server: SimulatedServer, sock: socket.socket) -> None:
        self.server = server
        self.sock = sock
        self.parser = httptools.HttpRequestParser(self)
        self.pending = b""
        self.closing = False  # as soon as `pending` is sent
        self.read_ns = 0
        self.stream: _Stream | None = None
        self.on_message_begin()

    def on_message_begin(self) -> None:
        self.path = b""
        self.headers: dict[bytes, bytes] = {}
        self.body = b""

    def on_url(self, url: bytes) -> None:
        self.path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.close = not self.parser.should_keep_alive()
        self.old = self.parser.get_http_version() == "1.0"
        self.server.request(self)


class SimulatedServer:
    """The server. `serve()` runs until `stop()` is called, for example by a signal handler."""

    def __init__(self, schedule: Schedule, host: str = "127.0.0.1", port: int = 0, log: Path | None = None) -> None:
        self.schedule = schedule
        self._listener = socket.create_server((host, port), backlog=BACKLOG)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._log: BinaryIO | None = log.open("wb") if log else None
        self._random = random.Random(schedule.seed)
        self._epoll = select.epoll()
        self._epoll.register(self._listener.fileno(), select.EPOLLIN)
        self._connections: dict[int, _Connection] = {}
        self._due: list[tuple[int, int, int, _Stream]] = []
        self._queue: deque[_Stream] = deque()
        self._free_ns = [0] * schedule.slots  # a heap: the instant at which each free slot became free
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
            wait_s = 0.2
            if due or self._stalled:
                until_ns = self._stall_ns[1] if self._stalled else due[0][0]
                wait_s = min(wait_s, (until_ns - time.monotonic_ns()) / 1e9)
            # epoll's own timeout is in whole milliseconds; select's is in microseconds.
            if wait_s > 0:
                select.select([epoll_fd], [], [], wait_s)
            now = self._now()
            while due and due[0][0] <= now and not self._stalled:
                _, _, index, stream = heapq.heappop(due)
                self._send_token(stream, index)
                now = self._now()
            self._sockets()
        if self._log:
            self._log.close()

    def _now(self) -> int:
        """The instant (monotonic, ns). Detects the stall's start and its end, when delayed tokens are sent."""
        now = time.monotonic_ns()
        begin, end = self._stall_ns
        was, self._stalled = self._stalled, begin <= now < end
        if was and not self._stalled:
            for connection in [each for each in self._connections.values() if each.pending]:
                self._write(connection, b"")
        return now

    # ------------------------------------------------------------------ sockets

    def _sockets(self) -> None:
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
                offset = wall_minus_mono_ns() if offset is None else offset
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
            self._connections[sock.fileno()] = _Connection(self, sock)
            self._epoll.register(sock.fileno(), select.EPOLLIN)

    def _read(self, connection: _Connection, offset: int) -> None:
        try:
            data, ancillary, _, _ = connection.sock.recvmsg(1 << 20, ANCILLARY_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data, ancillary = b"", []
        if not data:
            self._close(connection)
            return
        stamp = kernel_stamp_ns(ancillary)
        connection.read_ns = time.monotonic_ns() if stamp is None else stamp - offset
        try:
            connection.parser.feed_data(data)
        except httptools.HttpParserError:
            self._close(connection)

    def _write(self, connection: _Connection, data: bytes) -> None:
        flushing = bool(connection.pending)
        data = connection.pending + data
        if self._stalled:
            connection.pending = data
            return
        try:
            sent = connection.sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._close(connection)
            return
        connection.pending = data[sent:]
        if connection.closing and not connection.pending:
            self._close(connection)
            return
        mask = select.EPOLLIN | select.EPOLLOUT if connection.pending else select.EPOLLIN
        if connection.pending or flushing:
            self._epoll.modify(connection.sock.fileno(), mask)

    def _chunks(self, connection: _Connection, chunks: bytes) -> None:
        self._write(connection, unframed(chunks) if connection.old else chunks)

    def _close_when_sent(self, connection: _Connection) -> None:
        if connection.pending:
            connection.closing = True
        else:
            self._close(connection)

    def _close(self, connection: _Connection) -> None:
        if self._connections.pop(connection.sock.fileno(), None) is not None:
            self._epoll.unregister(connection.sock.fileno())
            connection.sock.close()
            if connection.stream is not None:
                self._end(connection.stream, "client closed")

    # ------------------------------------------------------------------ requests

    def request(self, connection: _Connection) -> None:
        """A complete request was received on this connection."""
        path = connection.path.decode("latin-1").partition("?")[0]
        if path == "/health":
            self._answer(connection, 200, {"status": "ok"})
        elif path == "/v1/models":
            self._answer(connection, 200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        elif path in ("/v1/chat/completions", "/v1/completions"):
            try:
                body = msgspec.json.decode(connection.body)
                self._open_stream(connection, body, chat=path == "/v1/chat/completions")
            except (msgspec.DecodeError, TypeError, ValueError, AttributeError, UsageError) as error:
                self._answer(connection, 400, {"error": {"code": 400, "message": f"bad request: {error}"}})
        else:
            self._answer(connection, 404, {"error": {"code": 404, "message": f"no such path: {path}"}})

    def _open_stream(self, connection: _Connection, body: dict[str, Any], *, chat: bool) -> None:
        schedule = self.schedule
        if asked := body.get("simulate"):
            known = {item.name for item in fields(Schedule)}
            schedule = replace(schedule, **{key: value for key, value in asked.items() if key in known})
        self._count += 1
        if self._count == 1:
            self._stall_ns = self.schedule.stall_ns(connection.read_ns)
            self._now()
        fault = schedule.fault if self._count % schedule.fault_every == 0 else ""
        if fault == "status":
            error = {"code": schedule.status, "message": "a simulated failure", "type": "server_error"}
            self._answer(connection, schedule.status, {"error": error})
            return
        max_tokens = int(body.get("max_tokens") or 0)
        total = 0 if fault == "empty" else int(schedule.answer_tokens(self._count, max_tokens))
        stream = _Stream(
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
            prompt_tokens=_prompt_tokens(body),
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

    def _start(self, stream: _Stream) -> None:
        """The request gets a slot: its headers are sent and its tokens scheduled."""
        schedule = stream.schedule
        # A request may be read after a slot became free that was in use when the request was received.
        free_ns = heapq.heappop(self._free_ns) if self.schedule.slots else 0
        stream.started_ns = max(stream.received_ns, free_ns)
        first, interval, jitter = (s_to_ns(s) for s in (schedule.first_token_s, schedule.interval_s, schedule.jitter_s))
        previous = 0
        for index in range(max(stream.total, 1)):
            moved = first + index * interval + (self._random.randint(-jitter, jitter) if jitter else 0)
            previous = max(previous, moved)
            stream.offsets_ns.append(previous)
        self._write(stream.connection, OLD_STREAM_HEAD if stream.connection.old else STREAM_HEAD)
        self._plan(stream, 0)

    def _plan(self, stream: _Stream, index: int) -> None:
        """Schedule the piece that begins with token `index` at the instant of its last token."""
        last = min(index + stream.schedule.merge, len(stream.offsets_ns)) - 1
        self._sequence += 1
        heapq.heappush(self._due, (stream.started_ns + stream.offsets_ns[last], self._sequence, index, stream))

    def _send_token(self, stream: _Stream, index: int) -> None:
        connection = stream.connection
        if connection.stream is not stream:
            return
        if stream.fault and self._fault(stream, index):
            return
        count = min(stream.schedule.merge, stream.total - index)
        frames = [ROLE[stream.chat]] if index == 0 else []
        frames += [first_token(chat=stream.chat, number=stream.number)] if index == 0 and count else []
        frames += [TOKEN[stream.chat]] * (count - (index == 0))
        last = index + count >= stream.total
        if last:
            frames.append(
                tail(
                    chat=stream.chat,
                    tokens=stream.total,
                    prompt_tokens=stream.prompt_tokens,
                    include_usage=stream.include_usage,
                    fault=stream.fault,
                    finish=stream.finish,
                    cached_tokens=stream.schedule.cached_tokens,
                )
            )
        now = time.monotonic_ns()
        stream.sent_ns += [now] * count
        self._chunks(connection, b"".join(frames))
        if last:
            self._end(stream, stream.fault or "ok")
        elif connection.stream is stream:
            self._plan(stream, index + count)

    def _fault(self, stream: _Stream, index: int) -> bool:
        """Apply the stream's fault if it is time. True if the stream ends."""
        if stream.fault not in ("cut", "reset", "stall", "error", "garbage") or index < stream.schedule.fault_after:
            return False
        connection = stream.connection
        if stream.fault == "stall":
            return True
        if stream.fault == "garbage":
            stream.fault = ""
            self._chunks(connection, frame(b'data: {"choices": [{"delta"\n\n'))
            return False
        if stream.fault == "error":
            failure = {"error": {"code": 500, "message": "a simulated failure", "type": "server_error"}}
            self._chunks(connection, event(failure) + b"0\r\n\r\n")
            self._end(stream, "error")
            return True
        if stream.fault == "reset":
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._close(connection)
        return True

    def _end(self, stream: _Stream, outcome: str) -> None:
        connection = stream.connection
        if connection.stream is not stream:  # the client disconnected while its last token was sent
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

    def _answer(self, connection: _Connection, status: int, value: object) -> None:
        body = msgspec.json.encode(value)
        then = "close" if connection.close else "keep-alive"
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: {then}\r\n\r\n"
        self._write(connection, head.encode() + body)
        if connection.close:
            self._close_when_sent(connection)


def _prompt_tokens(body: dict[str, Any]) -> int:
    """An estimate of the prompt's tokens, and the 16 of a chat template."""
    messages = body.get("messages") or [{"content": body.get("prompt")}]
    texts = [str(message.get("content") or "") for message in messages]
    return sum(EstimatedCounter().count(texts)) + TEMPLATE_TOKENS


def read_log(path: Path) -> list[dict[str, Any]]:
    """The server's log: a dict per request: `request_id`, `body_bytes`, `received_mono_ns`, `sent_mono_ns` (list), `outcome`…"""
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
