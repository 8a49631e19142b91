"""One HTTP/1.1 request and its streamed answer.

    start ──► opening ──► sending ──► waiting ──► streaming ──► done
                                 (no progress yet)  (progress seen)

Every stamp is monotonic ns. `started`, `connected` and `sent` are taken by the clock; `secured` (TLS done), `headers`,
progress and `ended` are the kernel's receive stamps of the reads that brought them (see `llama_load.wire.clock`).

Whether the connection is used again is the caller's policy (`Request.reuse`). A reused one that turns out to be dead before
a byte of the answer is the client's bad luck: the request goes out once more on a fresh one. A fresh one that dies is the
server's failure.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from llama_load.wire.connection import OPENING
from llama_load.wire.request import EventReader, Request, Timeouts
from llama_load.wire.response import Response
from llama_load.wire.sse import EventStream, EventTooLarge
from llama_load.wire.wire_failure import WireFailure

if TYPE_CHECKING:
    from gevent.hub import Waiter

    from llama_load.wire.address import Address
    from llama_load.wire.connection import Connection
    from llama_load.wire.pool import ConnectionPool

# A whole JSON answer, such as a batch of embeddings.
MAX_BODY_BYTES = 64 * 1024 * 1024
# Of a refusal's body the beginning is enough to tell why.
MAX_REFUSAL_BYTES = 64 * 1024
# All of one answer. A million tokens are 250 MB at most; a server that never ends must not fill the memory.
MAX_ANSWER_BYTES = 512 * 1024 * 1024

# A parked connection that the server closed in that very moment is found dead at once. One that dies later has cost the
# server work, and that is its failure.
REOPEN_WITHIN_NS = 1_000_000_000

# How long after the last event of an answer its end is waited for.
LINGER_S = 1.0

WAITING, STREAMING, DONE = range(3)


@dataclass(slots=True, eq=False)
class Exchange:
    """A request under way, and afterwards what became of it.

    `failure` is None exactly when a complete answer of any status came back. `merged` counts progress
    events that shared their read with a later one, so that their own arrival time is unknown.
    `headers_alone` is true when the header block came in a read without any body. `reused` says that no connection had to
    be opened (connected, secured and handshake are then None), `reopened` that a reused one was found dead.
    """

    pool: ConnectionPool
    address: Address
    request: Request
    reader: EventReader
    timeouts: Timeouts
    waiter: Waiter
    on_done: Callable[[Exchange], None]  # called once, when it is over

    started_ns: int = 0
    attempt_ns: int = 0  # when the connection that was used in the end was tried: `started_ns`, unless reopened
    first_write_ns: int | None = None
    connected_ns: int | None = None
    secured_ns: int | None = None
    tls_resumed: bool = False
    handshake_ns: int | None = None
    sent_ns: int | None = None
    headers_ns: int | None = None
    headers_alone: bool = False
    first_progress_ns: int | None = None
    last_progress_ns: int | None = None
    ended_ns: int | None = None
    reused: bool = False
    reopened: bool = False

    response: Response = field(default_factory=Response)
    body: bytearray = field(default_factory=bytearray)
    failure: WireFailure | None = None
    cancelled: bool = False

    progress_events: int = 0
    merged: int = 0
    first_merged: bool = False
    reads: int = 0
    user_space_reads: int = 0
    received_bytes: int = 0

    phase: int = WAITING
    phase_since_ns: int = 0
    _connection: Connection | None = None
    _events: EventStream | None = None

    @property
    def status(self) -> int | None:
        """The HTTP status, None if there was no answer."""
        return self.response.status

    @property
    def headers(self) -> dict[str, str]:
        """The answer's header fields, names in lower case."""
        return self.response.headers

    def wait(self) -> None:
        """Wait until the exchange is over (and it is our turn). Must be called once, by one greenlet."""
        self.waiter.get()

    # ------------------------------------------------------------------ going out

    def start(self) -> None:
        """Connect if need be, and send, without ever waiting. Failures end up in `failure`, none is raised."""
        head = self.request.head(self.address)
        parked = self.pool.parked(self.address) if self.request.reuse else None
        self.reused = parked is not None
        self._connection = parked or self.pool.new(self.address)
        self._connection.send(self, (head, *self.request.pieces))

    def on_start(self) -> None:
        """The connection is about to connect or, if it is open, to send: the clock starts. (A second try has started already.)"""
        self.attempt_ns = self.phase_since_ns = time.monotonic_ns()
        if not self.started_ns:
            self.started_ns = self.attempt_ns

    def on_sent(self, at: int) -> None:
        """The whole request is with the kernel."""
        self.sent_ns = at
        self.phase_since_ns = at

    def _reopen(self) -> None:
        """The parked connection was dead: once more, on a fresh one."""
        self.reused, self.reopened = False, True
        self.sent_ns = self.first_write_ns = None
        assert self._connection is not None
        self._connection.close()
        self._connection = self.pool.new(self.address)
        self._connection.send(self, (self.request.head(self.address), *self.request.pieces))

    # ------------------------------------------------------------------ coming in

    def take(self, data: memoryview, at: int) -> None:
        """Bytes of the answer were received at `at`."""
        response = self.response
        body = response.feed(data)
        if type(body) is not bytes:
            assert isinstance(body, WireFailure)
            self._fail_with(body)
            return
        if self.headers_ns is None and response.status is not None:
            self.headers_ns = at
            self.headers_alone = not body
            if response.is_event_stream:
                self._events = EventStream()
        if body:
            self.received_bytes += len(body)
            if self._events is None:
                self._take_body(body, at)
            else:
                self._take_events(body, at)
        if response.complete and self.phase != DONE:
            self._finish_body(at)

    def _take_body(self, body: bytes, at: int) -> None:
        self.body += body
        if len(self.body) > MAX_REFUSAL_BYTES and not self.response.is_success:
            del self.body[MAX_REFUSAL_BYTES:]
            self._finish_body(at)
        elif len(self.body) > MAX_BODY_BYTES:
            self.fail("too_large", f"the answer's body is larger than {MAX_BODY_BYTES} bytes")

    def _take_events(self, body: bytes, at: int) -> None:
        assert self._events is not None
        progress = 0
        read_event = self.reader.event
        try:
            for data in self._events.feed(body):
                if read_event(data, at):
                    progress += 1
        except EventTooLarge:
            self._event_too_large()
            return
        if not progress:
            return
        # A token that was sent alone came when the kernel says, however late it is read. Of several in one read only the last
        # one's stamp is known: the first may have come in time.
        if progress == 1 and self.is_overdue(at) and not self.reader.done and not self.user_space_reads:
            self.expire(at)
            return
        if self.last_progress_ns is None:
            self.first_progress_ns = at
            self.first_merged = progress > 1
            self.phase = STREAMING
            self.pool.mark_streaming(self._connection)
        else:
            self.pool.record_gap(at - self.last_progress_ns)
        self.last_progress_ns = self.phase_since_ns = at
        self.progress_events += progress
        self.merged += progress - 1
        if self.received_bytes > MAX_ANSWER_BYTES:
            self.fail("too_large", f"the answer did not end within {MAX_ANSWER_BYTES} bytes")

    def _event_too_large(self) -> None:
        self.fail("too_large", "an event of the stream grew beyond 4 MiB without ending")

    def connection_lost(self, kind: str, text: str, last_read_ns: int) -> None:
        """The connection is gone (`kind`: reset or cut_off), which ends some answers well."""
        if kind == "cut_off" and self.response.ends_with_the_connection:
            self._finish_body(last_read_ns)
        elif self.reused and self.response.nothing_yet and time.monotonic_ns() - self.attempt_ns < REOPEN_WITHIN_NS:
            self._reopen()
        else:
            self.fail(kind, f"{text} {self._where()}")

    def _finish_body(self, at: int) -> None:
        if self._events is not None:
            try:
                last = self._events.end()
            except EventTooLarge:
                self._event_too_large()
                return
            for data in last:
                self.progress_events += self.reader.event(data, at)
        self.ended_ns = at
        self._done()

    def _where(self) -> str:
        if self.response.status is None:
            return "before it answered"
        return "in the middle of the answer" if self.progress_events else "before the first token"

    # ------------------------------------------------------------------ the end

    def is_overdue(self, at: int) -> bool:
        """Whether the present phase has lasted longer by `at` than it may."""
        limit_s = self._limit_s
        return limit_s is not None and at - self.phase_since_ns > limit_s * 1e9

    @property
    def _limit_s(self) -> float | None:
        """How long the present phase may last, None without limit."""
        if self._connection is not None and self._connection.state == OPENING:
            return self.timeouts.connect_s
        if self.phase == STREAMING:
            return LINGER_S if self.reader.done else self.timeouts.token_s
        return self.timeouts.first_token_s

    @property
    def connection(self) -> Connection | None:
        """The connection that it uses now; None when it is over."""
        return self._connection

    def expire(self, now_ns: int) -> None:
        """The present phase has run out: fail with its timeout, unless there is another address to try or the answer is whole."""
        limit_s, connection = self._limit_s, self._connection
        if connection is not None and connection.state == OPENING:
            self.phase_since_ns = now_ns
            if connection.connected_ns is not None or not connection.try_next_endpoint():
                self.fail("connect_timeout", f"no connection within {limit_s:g} s")
        elif self.phase != STREAMING:
            self.fail("first_token_timeout", f"no first token within {limit_s:g} s")
        elif self.reader.done:  # the server keeps the stream open all the same
            self._finish_body(self.phase_since_ns)
        else:
            self.fail("token_timeout", f"no further token within {limit_s:g} s")

    def fail(self, kind: str, text: str) -> None:
        """End the exchange with a failure."""
        self._fail_with(WireFailure(kind, text))

    def cancel(self) -> None:
        """Close the connection now; the exchange is neither success nor failure."""
        if self.phase != DONE:
            self.cancelled = True
            self._ensure_started()
            self.ended_ns = time.monotonic_ns()
            self._done()

    def _fail_with(self, failure: WireFailure) -> None:
        if self.phase != DONE:
            self.failure = failure
            self._ensure_started()
            self.ended_ns = time.monotonic_ns()
            self._done()

    def _ensure_started(self) -> None:
        if not self.started_ns:  # it never got a socket
            self.on_start()

    def _done(self) -> None:
        self.phase = DONE
        connection, self._connection = self._connection, None
        if connection is not None:
            if not self.reused:
                self.connected_ns, self.secured_ns = connection.connected_ns, connection.secured_ns
                self.tls_resumed, self.handshake_ns = connection.tls_resumed, connection.handshake_ns
            if self.request.reuse and connection.all_sent and self.response.leaves_the_connection_open and not self.failure:
                self.pool.park(connection)
            else:
                connection.close()
        self.response.release()
        self.on_done(self)
