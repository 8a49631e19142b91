"""One HTTP/1.1 request and its streamed answer, on a connection of its own.

    start ──► connecting ──► (TLS handshake) ──► sending ──► waiting ──► streaming ──► done
                                                      (no progress yet)  (progress seen)

Every stamp is monotonic ns. `started`, `connected` and `sent` are taken here; `secured` (TLS done), `headers`, progress and
`ended` are the kernel's receive stamps of the reads that brought them (see `llama_load.wire.clock`).
The connection is closed after the answer: llama-server closes it anyway, whatever it announces, and a
stale connection would count as the server's failure.
"""

from __future__ import annotations

import _socket
import errno
import socket
import ssl
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from llama_load.wire.clock import ANCILLARY_BYTES, SO_TIMESTAMPNS, unpack_timespec
from llama_load.wire.errors import WireFailure, connect_failure, tls_text
from llama_load.wire.request import EventReader, Request, Timeouts
from llama_load.wire.response import Response
from llama_load.wire.sse import EventStream, EventTooLarge
from llama_load.wire.tls import TlsLayer

if TYPE_CHECKING:
    from gevent.hub import Waiter

    from llama_load.wire.address import Address
    from llama_load.wire.hub import Hub

# Bodies that are no event stream: errors, and whole JSON answers such as a batch of embeddings.
MAX_BODY_BYTES = 64 * 1024 * 1024

CONNECTING, SENDING, WAITING, STREAMING, DONE = range(5)

_IN_PROGRESS = {errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EINTR}


# struct tcp_info (linux/tcp.h): tcpi_rtt in us and tcpi_total_retrans, both u32.
_TCP_INFO_BYTES, _RTT_OFFSET, _RETRANSMITTED_OFFSET = 104, 68, 100


def _handshake_ns(sock: _socket.socket) -> int | None:
    """Round trip of the connection's handshake, None where the kernel does not tell or a segment was repeated."""
    if not hasattr(socket, "TCP_INFO"):
        return None
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    if len(info) < _TCP_INFO_BYTES or any(info[_RETRANSMITTED_OFFSET:_TCP_INFO_BYTES]):
        return None
    return int.from_bytes(info[_RTT_OFFSET : _RTT_OFFSET + 4], sys.byteorder) * 1000


@dataclass(slots=True, eq=False)
class Exchange:
    """A request under way, and afterwards what became of it.

    `failure` is None exactly when a complete answer of any status came back. `merged` counts progress
    events that shared their read with a later one, so that their own arrival time is unknown.
    `headers_alone` is true when the header block came in a read without any body.
    """

    hub: Hub
    address: Address
    request: Request
    reader: EventReader
    timeouts: Timeouts
    waiter: Waiter

    started_ns: int = 0
    connected_ns: int | None = None
    secured_ns: int | None = None
    tls_resumed: bool = False
    handshake_ns: int | None = None  # the round trip of the TCP handshake as the kernel saw it
    sent_ns: int | None = None
    headers_ns: int | None = None
    headers_alone: bool = False
    first_progress_ns: int | None = None
    last_progress_ns: int | None = None
    ended_ns: int | None = None

    response: Response = field(default_factory=Response)
    body: bytearray = field(default_factory=bytearray)
    failure: WireFailure | None = None
    cancelled: bool = False

    progress_events: int = 0
    merged: int = 0
    first_merged: bool = False
    reads: int = 0
    user_space_reads: int = 0

    phase: int = CONNECTING
    fd: int = -1
    phase_since_ns: int = 0
    _sock: _socket.socket | None = None
    _endpoint: int = 0
    _endpoints_tried: int = 0
    _unsent: list[memoryview] = field(default_factory=list)
    _tls: TlsLayer | None = None
    _events: EventStream | None = None
    _read_ns: int = 0

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
        """Connect and send, without ever waiting. Failures end up in `failure`, none is raised."""
        self._endpoint = self.hub.good_endpoint.get(self.address, 0)
        self._connect()

    def _connect(self) -> None:
        family, sockaddr = self.address.endpoints[self._endpoint]
        self._endpoints_tried += 1
        try:
            sock = _socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if SO_TIMESTAMPNS is not None:
                sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        except OSError as error:  # most likely out of file descriptors
            self.started_ns = self.started_ns or time.monotonic_ns()
            self.fail("connect_failed", f"no socket to be had: {error.strerror}")
            return
        self._sock, self.fd = sock, sock.fileno()
        if self.address.scheme == "https":
            self._tls = self.hub.tls_layer(self.address)
            self._unsent = [memoryview(self._tls.hello())]
        else:
            self._unsent = [memoryview(part) for part in (self.request.head(self.address), self.request.body) if part]
        if not self.started_ns:
            self.started_ns = self.phase_since_ns = time.monotonic_ns()
        code = sock.connect_ex(sockaddr)
        if code and code not in _IN_PROGRESS:
            self._connect_failed(code)
            return
        self._write()
        if self.phase != DONE:
            self.hub.watch(self, writable=bool(self._unsent))

    def _connect_failed(self, code: int) -> None:
        self._close()
        if self._endpoints_tried < len(self.address.endpoints):
            self._endpoint = (self._endpoint + 1) % len(self.address.endpoints)
            self._connect()
            return
        self._fail_with(connect_failure(code))

    def _write(self) -> None:
        assert self._sock is not None
        try:
            while self._unsent:
                count = self._sock.sendmsg(self._unsent)
                if self.phase == CONNECTING:
                    self._connected()
                while self._unsent and count >= len(self._unsent[0]):
                    count -= len(self._unsent.pop(0))
                if count:
                    self._unsent[0] = self._unsent[0][count:]
        except BlockingIOError:
            return
        except OSError as error:
            if self.phase == CONNECTING:
                if error.errno not in (errno.ENOTCONN, errno.EAGAIN):
                    self._connect_failed(error.errno or 0)
            elif error.errno in (errno.EPIPE, errno.ECONNRESET):
                self._unsent.clear()  # an early answer may still be waiting to be read
                self.hub.watch(self, writable=False)
            else:
                self.fail("reset", f"sending failed: {error.strerror}")
            return
        if self.sent_ns is None and (self._tls is None or self._tls.ready):
            self.sent_ns = self._read_ns = time.monotonic_ns()
            self._enter(WAITING)

    def _connected(self) -> None:
        assert self._sock is not None
        self.connected_ns = time.monotonic_ns()
        self.handshake_ns = _handshake_ns(self._sock)
        self.hub.good_endpoint[self.address] = self._endpoint
        self._enter(SENDING)

    # ------------------------------------------------------------------ coming in

    def on_writable(self) -> None:
        """The loop saw the socket writable (or in error) while bytes are left to send."""
        assert self._sock is not None
        if self.phase == CONNECTING:
            code = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self._connect_failed(code)
                return
            self._connected()
        self._write()
        if self.phase != DONE and not self._unsent:
            self.hub.watch(self, writable=False)

    def on_readable(self, buffer: bytearray, view: memoryview, wall_minus_mono_ns: int, now_ns: int) -> None:
        """Read once what is there; a full buffer is read again. `now_ns` is when this batch of reads began."""
        while self.phase != DONE:
            assert self._sock is not None
            try:
                count, ancillary, _, _ = self._sock.recvmsg_into((buffer,), ANCILLARY_BYTES)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if self.phase == CONNECTING:
                    self._connect_failed(error.errno or 0)
                elif self._tls is not None and not self._tls.ready:
                    self.fail("tls", "the server reset the connection during the TLS handshake")
                else:
                    self.fail("reset", f"connection reset by the server {self._where()}")
                return
            if not count:
                self._end_of_stream()
                return
            if ancillary:  # kernel_stamp_ns, in line: this is once a token
                seconds, nanoseconds = unpack_timespec(ancillary[0][2])
                at = seconds * 1_000_000_000 + nanoseconds - wall_minus_mono_ns
                # A wall clock that was stepped between receipt and sampling must not put a stamp into the future,
                # or before what came earlier on this connection.
                if at > now_ns:
                    at = min(at, time.monotonic_ns())
                at = max(at, self._read_ns)
            else:
                self.user_space_reads += 1
                at = time.monotonic_ns()
            self.reads += 1
            self._read_ns = at
            if self._tls is None:
                self._take(view[:count], at)
            else:
                self._take_encrypted(self._tls, view[:count], at)
            if count < len(buffer):
                return

    def _take_encrypted(self, tls: TlsLayer, data: memoryview, at: int) -> None:
        handshake = not tls.ready
        try:
            reply, plain = tls.received(data)
            if handshake and tls.ready:
                self.secured_ns = at
                self.tls_resumed = tls.resumed
                reply += tls.encrypt(self.request.head(self.address) + self.request.body)
        except ssl.SSLError as error:
            self.fail("tls", tls_text(error))
            return
        if reply:
            self._unsent.append(memoryview(reply))
            self._write()
            if self._unsent and self.phase in (SENDING, CONNECTING):
                self.hub.watch(self, writable=True)
        if plain and self.phase != DONE:
            self._take(memoryview(plain), at)

    def _take(self, data: memoryview, at: int) -> None:
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
            if self._events is None:
                self._take_body(body)
            else:
                self._take_events(body, at)
        if response.complete and self.phase != DONE:
            self._finish_body(at)

    def _take_body(self, body: bytes) -> None:
        self.body += body
        if len(self.body) > MAX_BODY_BYTES:
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
            self.fail("too_large", "an event of the stream grew beyond 4 MiB without ending")
            return
        if not progress:
            return
        if self.last_progress_ns is None:
            self.first_progress_ns = at
            self.first_merged = progress > 1
            self.phase = STREAMING
            self.hub.now_streaming(self)
        else:
            self.hub.saw_gap(at - self.last_progress_ns)
        self.last_progress_ns = self.phase_since_ns = at
        self.progress_events += progress
        self.merged += progress - 1

    def _end_of_stream(self) -> None:
        if self.response.ends_with_the_connection:
            self._finish_body(self._read_ns)
        elif self._tls is not None and not self._tls.ready:
            self.fail("tls", "the server closed the connection during the TLS handshake")
        else:
            self.fail("cut_off", f"the server closed the connection {self._where()}")

    def _finish_body(self, at: int) -> None:
        if self._events is not None:
            for data in self._events.end():
                self.progress_events += self.reader.event(data, at)
        self.ended_ns = at
        self._done()

    def _where(self) -> str:
        if self.response.status is None:
            return "before it answered"
        return "in the middle of the answer" if self.progress_events else "before the first token"

    # ------------------------------------------------------------------ the end

    def expired(self, now_ns: int) -> None:
        """Fail with the timeout of the present phase if it has run out."""
        waited_s = (now_ns - self.phase_since_ns) / 1e9
        limits = self.timeouts
        if self.phase == CONNECTING or (self._tls is not None and not self._tls.ready):
            if limits.connect_s is not None and waited_s > limits.connect_s:
                if self._endpoints_tried < len(self.address.endpoints):
                    self.phase_since_ns = now_ns
                    self._connect_failed(errno.ETIMEDOUT)  # the next address of this name
                else:
                    self.fail("connect_timeout", f"no connection within {limits.connect_s:g} s")
        elif self.phase == STREAMING:
            if limits.token_s is not None and waited_s > limits.token_s:
                self.fail("token_timeout", f"no further token within {limits.token_s:g} s")
        elif limits.first_token_s is not None and waited_s > limits.first_token_s:
            self.fail("first_token_timeout", f"no first token within {limits.first_token_s:g} s")

    def fail(self, kind: str, text: str) -> None:
        """End the exchange with a failure."""
        self._fail_with(WireFailure(kind, text))

    def cancel(self) -> None:
        """Close the connection now; the exchange is neither success nor failure."""
        if self.phase != DONE:
            self.cancelled = True
            self.ended_ns = time.monotonic_ns()
            self._done()

    def _fail_with(self, failure: WireFailure) -> None:
        if self.phase != DONE:
            self.failure = failure
            self.ended_ns = time.monotonic_ns()
            self._done()

    def _enter(self, phase: int) -> None:
        self.phase = phase
        if phase == WAITING:  # the first-token clock runs from the start of sending
            return
        self.phase_since_ns = time.monotonic_ns()

    def _done(self) -> None:
        self.phase = DONE
        self._close()
        self.response.release()
        if self._tls is not None and self._tls.ready:
            self.hub.keep_session(self.address, self._tls)
        self._unsent.clear()
        self.hub.forget(self)

    def _close(self) -> None:
        if self._sock is not None:
            self.hub.unwatch(self)
            self._sock.close()
            self._sock, self.fd = None, -1
