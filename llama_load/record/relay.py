"""The relay between clients and a server: bytes go on as they come, unchanged and unbuffered.

Each client's connection has one connection to the server. Whatever one side does (keep-alive, the
end of its stream, a reset) the other side sees. Copies of what passed are
understood later, in another process; here they are cut into exchanges.

Two things are changed, and only where they must be: `Host`, for a server on another machine, and
the client's key, if the relay has a key of its own (it then listens to other machines).
"""

from __future__ import annotations

import os
import re
import selectors
import socket
import ssl
import struct
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus

import msgspec

from llama_load.bound_headers import (
    COOKIE_OF_PAGES,
    NO_HEADERS,
    BoundHeaders,
    bearer,
    is_bearer,
)
from llama_load.record.delay_counts import DelayCounts
from llama_load.record.exchange_keys import MOST_CHARS_OF_FORMS, keys_of_head
from llama_load.record.foreign_pages import page_of
from llama_load.record.http_framing import (
    BadMessageError,
    Body,
    Head,
    HeadTooLargeError,
    MessageReader,
    Part,
)
from llama_load.record.passed_exchange import PassedExchange, RelayFigures, encoded
from llama_load.secret_forms import pattern_of
from llama_load.units import ns_to_ms
from llama_load.wire.address import Address
from llama_load.wire.clock import (
    ANCILLARY_BYTES,
    SO_TIMESTAMPNS,
    kernel_stamp_ns,
    wall_minus_mono_ns,
)
from llama_load.wire.limits import open_files
from llama_load.wire.local_ports import is_loopback
from llama_load.wire.priority import SenderPriority
from llama_load.wire.tls import TlsLayer, TlsOptions

READ_BYTES = 256 << 10
# As on our other ports: who sends no whole head within this time is cut off.
HEAD_WITHIN_S = 10.0
# Who sends nothing more of a body for so long, too.
BODY_WITHIN_S = 30.0
CONNECT_WITHIN_S = 10.0
# Requests that wait for their answers on one connection. More are read when those are answered.
MOST_PIPELINED = 64
# Two descriptors a client, and half of them stay for the rest of the process.
SHARE_OF_FILES = 4
MOST_CLIENTS = 2048
# Larger bodies pass as all others do, and are not recorded. A prompt of a million tokens has 5 MiB.
MOST_BODY_BYTES = 64 << 20
# Of copies in the relay, those on their way to the recording process included.
MOST_KEPT_BYTES = 256 << 20
# What a piece takes beside its bytes, which may be one.
BYTES_OF_PIECE = 128
# What a refused client still sends is read so long, so that it sees the answer.
DISCARD_WITHIN_S = 2.0
SINK_WRITE_BYTES = 64 << 10
_TICK_S = 0.5
_RESET = struct.pack("ii", 1, 0)  # linger for 0 s: closing sends a reset
Handler = Callable[[int], None]
PAGE_COOKIE = COOKIE_OF_PAGES.encode()
_KEY_FIELDS = (b"authorization", b"x-api-key", b"api-key")


@dataclass(slots=True)
class _Copy:
    """The copy of an exchange, while it goes on."""

    passed: PassedExchange
    body: list[bytes] = field(default_factory=list)
    body_bytes: int = 0
    bytes_kept: int = 0  # in memory
    request_delay_ms: float = 0.0
    answer_delay_ms: float = 0.0


def _nothing(_: int) -> None:
    """Before a connection is there."""


class _Pair:
    """A client's connection, and the one to the server that belongs to it."""

    def __init__(
        self, client: socket.socket, now_s: float, *, drops_additions: bool
    ) -> None:
        self.client = client
        self.on_client: Handler = _nothing
        self.on_server: Handler = _nothing
        self.server: socket.socket | None = None
        self.tls: TlsLayer | None = None
        self.is_connected = False
        self.endpoints_left: list[tuple[int, tuple[object, ...]]] = []
        # A client that does not send the rest of a head or of a body, or a server that does not
        # connect, until then.
        self.rest_by_s: float | None = now_s + HEAD_WITHIN_S
        self.connect_by_s: float | None = None
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
        self.open: deque[_Copy] = deque()  # the oldest first, which is being answered
        self.asking: _Copy | None = None  # its request is not complete
        self.request_came_ns: int | None = None
        # What came before these instants waited for the other side, not for the relay.
        self.client_is_slow = False
        self.server_is_slow = False
        self.client_held_until_ns = 0
        self.server_held_until_ns = 0


def _without_page_cookies(line: bytes) -> list[bytes]:
    """The field Cookie without the keys of pages of ours: browsers send cookies to all ports of a
    host. No line where none is left."""
    name, _, value = line.partition(b":")
    others = []
    for cookie in value.split(b";"):
        if not cookie.strip().startswith(PAGE_COOKIE):
            others.append(cookie.strip())
    return [name + b": " + b"; ".join(others)] if others else []


def _forms_of(key: str) -> re.Pattern[str]:
    if len(key) > MOST_CHARS_OF_FORMS:
        return re.compile(re.escape(key))
    return re.compile(pattern_of(key))


class Relay:
    """Listens for clients and passes their bytes on to one server. One thread runs `serve`."""

    def __init__(
        self,
        to: Address,
        host: str,
        port: int,
        sink: int,
        *,
        key: str | None = None,
        server_keys: BoundHeaders = NO_HEADERS,
        tls: TlsOptions | None = None,
        priority: SenderPriority | None = None,
    ) -> None:
        """`to`: resolved. `sink`: the descriptor of a pipe to the recording process. `key`: what a
        client must send. `priority`: of the thread that serves, if that is the main one. Raises
        OSError if it cannot listen there."""
        self._priority = priority
        self._to = to
        self._key = key
        self._forms_of_key = None if key is None else _forms_of(key)
        self._server_keys = server_keys
        self._context: ssl.SSLContext | None = None
        if to.scheme == "https":
            self._context = (tls or TlsOptions()).context()
        self._sink = sink
        os.set_blocking(sink, False)
        self._unsent: deque[memoryview] = deque()  # to the recording process
        self._kept_bytes = 0
        self._sink_is_open = True
        self._delays = DelayCounts()
        self._count = 0
        self._refused = 0
        self._not_recorded = 0
        self._pairs: OrderedDict[_Pair, None] = OrderedDict()
        self._stops = False
        self._offset_ns = wall_minus_mono_ns()
        self._selector = selectors.DefaultSelector()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=128)
        self._listener.setblocking(False)
        if SO_TIMESTAMPNS is not None:  # a request may be there before it is accepted
            self._listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        # A signal wakes the loop through this.
        self._wake_reads, self._wake_writes = socket.socketpair()
        self._wake_reads.setblocking(False)
        self._selector.register(
            self._wake_reads, selectors.EVENT_READ, lambda _: self._woken()
        )
        self._keeps_host = to.scheme == "http" and is_loopback(to.host)

    @property
    def port(self) -> int:
        """Where it listens."""
        port: int = self._listener.getsockname()[1]
        return port

    # ------------------------------------------------------------------ life

    def stop(self) -> None:
        """End `serve`. May be called in a signal handler and in another thread."""
        self._stops = True
        with suppress(OSError):
            self._wake_writes.send(b"x")

    def serve(self) -> None:
        """Pass bytes on until `stop`; then hand over what is left, with the figures."""
        next_tick_s = time.monotonic() + _TICK_S
        if self._priority is not None:
            self._priority.take()
        while not self._stops:
            for key, events in self._selector.select(_TICK_S):
                handle: Callable[[int], None] = key.data
                handle(events)
            now_s = time.monotonic()
            if now_s >= next_tick_s:
                self._tick(now_s)
                next_tick_s = now_s + _TICK_S
        if self._priority is not None:
            self._priority.give_back()
        self._finish()

    def _woken(self) -> None:
        with suppress(OSError):
            self._wake_reads.recv(64)

    def _tick(self, now_s: float) -> None:
        self._offset_ns = wall_minus_mono_ns()
        if self._priority is not None:
            self._priority.adapt()
        for pair in list(self._pairs):
            if pair.connect_by_s is not None and now_s >= pair.connect_by_s:
                self._try_next_endpoint(pair, "did not answer in time")
            elif pair.rest_by_s is None or now_s < pair.rest_by_s:
                continue
            elif pair.to_server or pair.plain:  # the server takes nothing
                pair.rest_by_s = now_s + BODY_WITHIN_S
            elif pair.requests.is_in_head and not pair.discards:
                self._refuse(pair, 408, "the head of the request did not come in time")
            elif pair.asking is not None and not pair.discards:
                self._refuse(pair, 408, "the rest of the request did not come in time")
            else:
                self._close(pair, ended_by="client")
            self._watch(pair)

    def _finish(self) -> None:
        self._listener.close()
        for pair in list(self._pairs):
            self._close(pair, ended_by="stopped")
        self._hand_over(encoded(self._figures()))
        if self._sink_is_open:
            os.set_blocking(self._sink, True)
            self._write_to_sink()
        self._selector.close()
        self._wake_reads.close()
        self._wake_writes.close()

    def _figures(self) -> RelayFigures:
        return RelayFigures(
            pieces=self._delays.count,
            median_delay_ms=self._delays.percentile_ms(50),
            p99_delay_ms=self._delays.percentile_ms(99),
            most_delay_ms=self._delays.most_ms,
            refused=self._refused,
            not_recorded=self._not_recorded,
        )

    # ------------------------------------------------------------------ connections

    def _accept(self, _: int) -> None:
        try:
            client, _address = self._listener.accept()
        except OSError:  # it has gone again, or no descriptor is left
            return
        most = min(MOST_CLIENTS, max(1, open_files() // SHARE_OF_FILES))
        if len(self._pairs) >= most:
            oldest = self._oldest_that_waits()
            if oldest is None:
                client.close()
                return
            self._close(oldest, ended_by="client")
        self._set_up(client)
        pair = _Pair(client, time.monotonic(), drops_additions=self._key is not None)
        pair.on_client = lambda events: self._on_client(pair, events)
        pair.on_server = lambda events: self._on_server(pair, events)
        self._pairs[pair] = None
        self._watch(pair)

    def _oldest_that_waits(self) -> _Pair | None:
        """The first client to make room: without a request, else with a part of one."""
        for pair in self._pairs:
            if not pair.open:
                return pair
        for pair in self._pairs:
            if pair.asking is not None and len(pair.open) == 1:
                return pair
        return None

    def _set_up(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if SO_TIMESTAMPNS is not None:
            sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)

    def _connect(self, pair: _Pair) -> None:
        pair.endpoints_left = list(self._to.endpoints)
        self._try_next_endpoint(pair, "has no address")

    def _try_next_endpoint(self, pair: _Pair, why: str) -> None:
        """Connect to the server's next address; without one the client gets 502."""
        self._drop_server(pair)
        while pair.endpoints_left:
            family, address = pair.endpoints_left.pop(0)
            try:
                server = socket.socket(family, socket.SOCK_STREAM)
            except OSError as error:  # no descriptor is left
                why = error.strerror or str(error)
                continue
            self._set_up(server)
            pair.server = server
            pair.is_connected = False
            pair.connect_by_s = time.monotonic() + CONNECT_WITHIN_S
            if self._context is not None:
                pair.tls = TlsLayer(self._context, self._to.host, None)
            try:
                server.connect(address)
            except BlockingIOError:
                pass
            except OSError as error:
                why = error.strerror or str(error)
                self._drop_server(pair)
                continue
            self._watch(pair)
            return
        self._refuse(pair, 502, f"{self._to.url}: {why}")

    def _drop_server(self, pair: _Pair) -> None:
        server = pair.server
        pair.server = None
        pair.tls = None
        pair.is_connected = False
        pair.connect_by_s = None
        if server is None:
            return
        with suppress(KeyError, ValueError):
            self._selector.unregister(server)
        server.close()

    def _close(self, pair: _Pair, *, ended_by: str = "", reset: bool = False) -> None:
        """Close both connections. `reset`: both sides see a reset, as one of them has sent."""
        if pair not in self._pairs:
            return
        del self._pairs[pair]
        for copy in pair.open:
            self._end_copy(copy, ended_by)
        pair.open.clear()
        for sock in (pair.client, pair.server):
            if sock is None:
                continue
            with suppress(KeyError, ValueError):
                self._selector.unregister(sock)
            if reset:
                with suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            sock.close()

    def _watch(self, pair: _Pair) -> None:
        """Wait for what can be done next. A side is not read while the other one takes nothing."""
        if pair not in self._pairs:
            return
        if pair.client_ended and pair.server_ended and not pair.to_client:
            self._close(pair, ended_by="server")
            return
        reads_client = not (
            pair.client_ended
            or pair.to_server
            or pair.plain
            or len(pair.open) >= MOST_PIPELINED
        )
        self._listen_to(pair.client, pair.on_client, reads_client, bool(pair.to_client))
        server = pair.server
        if server is None:
            return
        writes = bool(pair.to_server) or not pair.is_connected
        reads = pair.is_connected and not (pair.server_ended or pair.to_client)
        self._listen_to(server, pair.on_server, reads, writes)

    def _listen_to(
        self, sock: socket.socket, handle: Handler, reads: bool, writes: bool
    ) -> None:
        wanted = selectors.EVENT_READ if reads else 0
        if writes:
            wanted |= selectors.EVENT_WRITE
        key = self._selector.get_map().get(sock)
        if key is None:
            if wanted:
                self._selector.register(sock, wanted, handle)
        elif not wanted:  # else a hang-up would wake us all the time
            self._selector.unregister(sock)
        elif wanted != key.events:
            self._selector.modify(sock, wanted, handle)

    def _received(self, sock: socket.socket) -> tuple[bytes, int]:
        """What came, and when (monotonic ns). Raises OSError."""
        data, ancillary, _, _ = sock.recvmsg(READ_BYTES, ANCILLARY_BYTES)
        now_ns = time.monotonic_ns()
        stamp_ns = kernel_stamp_ns(ancillary)
        if stamp_ns is None:
            return data, now_ns
        # A step of the wall clock must not put it into the future.
        return data, min(now_ns, stamp_ns - self._offset_ns)

    # ------------------------------------------------------------------ the client's side

    def _on_client(self, pair: _Pair, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._flush_client(pair)
        if events & selectors.EVENT_READ and pair in self._pairs:
            self._read_client(pair)
        self._watch(pair)

    def _read_client(self, pair: _Pair) -> None:
        try:
            data, came_ns = self._received(pair.client)
        except BlockingIOError:
            return
        except OSError:
            self._close(pair, ended_by="client", reset=True)
            return
        if not data:
            self._end_of_client(pair)
            return
        if pair.discards:
            return
        try:
            parts = pair.requests.feed(data)
        except HeadTooLargeError as error:
            self._refuse(pair, 431, f"this request cannot be passed on: {error}")
            return
        except BadMessageError as error:
            self._refuse(pair, 400, f"this request cannot be passed on: {error}")
            return

        if pair.request_came_ns is None:
            pair.request_came_ns = came_ns
        for part in parts:
            if not self._take_request_part(pair, part, came_ns):
                return
        if pair.asking is not None:
            pair.rest_by_s = time.monotonic() + BODY_WITHIN_S
        elif not pair.requests.is_in_head:
            pair.rest_by_s = None
        elif pair.rest_by_s is None:
            pair.rest_by_s = time.monotonic() + HEAD_WITHIN_S
        self._flush_server(pair)

    def _end_of_client(self, pair: _Pair) -> None:
        """The client sends nothing more: so the server is told, which decides what that means."""
        pair.client_ended = True
        if pair.server is None or pair.tls is not None:
            self._close(pair, ended_by="client")
            return
        self._flush_server(pair)

    def _take_request_part(self, pair: _Pair, part: Part, came_ns: int) -> bool:
        """False: it was refused."""
        if isinstance(part, Head):
            fault = self._fault_of(part)
            if fault is not None:
                self._refuse(pair, *fault)
                return False
            self._begin_copy(pair, part, came_ns)
            self._send_to_server(pair, self._as_sent(part))
            if pair.server is None and not pair.discards:
                self._connect(pair)
        elif isinstance(part, Body):
            self._send_to_server(pair, part.raw)
            copy = pair.asking
            if copy is not None and part.data and self._may_keep(copy, part.data):
                copy.body.append(part.data)
        else:
            pair.asking = None
        return pair in self._pairs

    def _fault_of(self, head: Head) -> tuple[int, str] | None:
        """Why a request is not passed on: status and sentence."""
        if self._key is None:
            page = page_of(head)
            if page is not None:
                return 403, (
                    f"{page} may be a page of others: set a key in LLAMA_LOAD_RECORD_KEY, which "
                    "clients send as their API key"
                )
        elif not self._has_key(head, self._key):
            return 401, "send the key of llama-load record as your API key"
        if self._has_form_of_key(head.first_line):
            return (
                400,
                "the key of llama-load record belongs into a header, not into the URL",
            )
        if head.values(b"upgrade") or head.method == "CONNECT":
            return 501, "llama-load record passes on no upgrade of the protocol"
        if not head.path.startswith(("/", "*")):
            return (
                400,
                "llama-load record is no proxy to set in HTTP_PROXY: it is the base URL",
            )
        return None

    def _has_key(self, head: Head, key: str) -> bool:
        for name in _KEY_FIELDS:
            for value in head.values(name):
                text = value.decode("latin-1")
                (_, as_bearer), *_ = bearer(text) or (("", ""),)
                if is_bearer(text, key) or is_bearer(as_bearer, key):
                    return True
        return False

    def _has_form_of_key(self, line: bytes) -> bool:
        """Whether it contains the key of the relay, as it is or encoded."""
        pattern = self._forms_of_key
        return pattern is not None and bool(pattern.search(line.decode("latin-1")))

    def _as_sent(self, head: Head) -> bytes:
        """The head's bytes, unchanged unless the server needs another Host or key, or a browser has
        sent the key of another page of ours."""
        has_cookie = PAGE_COOKIE in head.raw
        if self._key is None and self._keeps_host and not has_cookie:
            return head.raw
        lines = head.raw.removesuffix(b"\r\n\r\n").split(b"\r\n")
        kept = [lines[0]]
        for line in lines[1:]:
            name = line.partition(b":")[0].lower()
            if name == b"host" and not self._keeps_host:
                kept.append(b"Host: " + self._to.host_header.encode("latin-1"))
            elif self._key is not None and (
                name in _KEY_FIELDS or self._has_form_of_key(line)
            ):
                continue
            elif has_cookie and name == b"cookie":
                kept += _without_page_cookies(line)
            else:
                kept.append(line)
        if self._key is not None:
            for field_name, value in self._server_keys.for_origin(self._to.origin):
                kept.append(f"{field_name}: {value}".encode("latin-1"))
        return b"\r\n".join(kept) + b"\r\n\r\n"

    def _send_to_server(self, pair: _Pair, data: bytes) -> None:
        if pair.server_takes_nothing:
            return
        if pair.tls is None:
            pair.to_server += data
        elif pair.tls.ready:
            pair.to_server += pair.tls.encrypt(data)
        else:
            pair.plain += data

    def _flush_client(self, pair: _Pair) -> None:
        if pair.to_client:
            try:
                sent = pair.client.send(pair.to_client)
            except BlockingIOError:
                pair.client_is_slow = True
                return
            except OSError:
                self._close(pair, ended_by="client", reset=True)
                return
            del pair.to_client[:sent]
            if pair.to_client:
                pair.client_is_slow = True
                return
        if pair.client_is_slow:
            pair.client_is_slow = False
            pair.client_held_until_ns = time.monotonic_ns()
        if pair.resets_when_sent:
            self._close(pair, ended_by="server", reset=True)
        elif (pair.server_ended or pair.discards) and not pair.end_to_client_is_sent:
            pair.end_to_client_is_sent = True
            with suppress(OSError):
                pair.client.shutdown(socket.SHUT_WR)

    def _refuse(self, pair: _Pair, status: int, sentence: str) -> None:
        """Answer a request instead of the server, and read no further one."""
        self._refused += 1
        is_answering = len(pair.open) > 1 or not pair.answers.is_between
        if is_answering or pair.discards:
            self._close(pair, ended_by="client")
            return
        for copy in pair.open:
            copy.passed.status = status
            self._end_copy(copy, "relay")
        pair.open.clear()
        self._drop_server(pair)
        pair.to_server.clear()
        pair.plain.clear()
        pair.server_takes_nothing = True
        pair.discards = True
        pair.rest_by_s = time.monotonic() + DISCARD_WITHIN_S
        error = {"code": status, "message": sentence, "type": "llama_load_record"}
        body = msgspec.json.encode({"error": error})
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n"
        )
        pair.to_client += head.encode("ascii") + body
        self._flush_client(pair)

    # ------------------------------------------------------------------ the server's side

    def _on_server(self, pair: _Pair, events: int) -> None:
        server = pair.server
        if server is None or pair not in self._pairs:
            return
        if not pair.is_connected:
            fault = server.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if fault:
                self._try_next_endpoint(pair, os.strerror(fault))
                self._watch(pair)
                return
            pair.is_connected = True
            pair.connect_by_s = None
            if pair.tls is not None:
                pair.to_server += pair.tls.hello()
        if events & selectors.EVENT_WRITE:
            self._flush_server(pair)
        if events & selectors.EVENT_READ and pair in self._pairs:
            self._read_server(pair, server)
        self._watch(pair)

    def _flush_server(self, pair: _Pair) -> None:
        server = pair.server
        if server is None or not pair.is_connected:
            return
        if pair.to_server:
            try:
                sent = server.send(pair.to_server)
            except BlockingIOError:
                pair.server_is_slow = True
                return
            except OSError:
                # It may have answered before it stopped to take what comes: that is read on.
                pair.to_server.clear()
                pair.server_takes_nothing = True
                return
            del pair.to_server[:sent]
            if pair.to_server:
                pair.server_is_slow = True
                return
        self._count_request_delay(pair)
        if pair.client_ended and not pair.end_to_server_is_sent and not pair.plain:
            pair.end_to_server_is_sent = True
            with suppress(OSError):
                server.shutdown(socket.SHUT_WR)

    def _count_request_delay(self, pair: _Pair) -> None:
        """All that came from the client is sent."""
        now_ns = time.monotonic_ns()
        came_ns = pair.request_came_ns
        pair.request_came_ns = None
        if pair.server_is_slow:
            pair.server_is_slow = False
            pair.server_held_until_ns = now_ns
        elif came_ns is not None and came_ns >= pair.server_held_until_ns:
            delay_ms = ns_to_ms(now_ns - came_ns)
            self._delays.add(delay_ms)
            if pair.open:
                copy = pair.open[-1]
                copy.request_delay_ms = max(copy.request_delay_ms, delay_ms)

    def _read_server(self, pair: _Pair, server: socket.socket) -> None:
        try:
            data, came_ns = self._received(server)
            is_end = not data
            if pair.tls is not None and data:
                data = self._decrypted(pair, pair.tls, data)
        except BlockingIOError:
            return
        except OSError:  # a reset; also what is no TLS
            self._end_of_answers(pair, was_reset=True)
            return
        if is_end:
            self._end_of_answers(pair, was_reset=False)
            return
        if not data:
            return

        pair.to_client += data
        self._flush_client(pair)
        if pair not in self._pairs:
            return
        if not pair.to_client and came_ns >= pair.client_held_until_ns:
            delay_ms = ns_to_ms(time.monotonic_ns() - came_ns)
            self._delays.add(delay_ms)
            if pair.open:
                copy = pair.open[0]
                copy.answer_delay_ms = max(copy.answer_delay_ms, delay_ms)
        self._copy_answer(pair, data, came_ns)

    def _decrypted(self, pair: _Pair, tls: TlsLayer, data: bytes) -> bytes:
        was_ready = tls.ready
        reply, plain = tls.received(data)
        pair.to_server += reply
        if tls.ready and not was_ready and pair.plain:
            pair.to_server += tls.encrypt(bytes(pair.plain))
            pair.plain.clear()
        if pair.to_server:
            self._flush_server(pair)
        return plain

    def _end_of_answers(self, pair: _Pair, *, was_reset: bool) -> None:
        """The server's side ended: the client sees the same, once it has what came before."""
        pair.server_ended = True
        if pair.tls is not None and not pair.tls.ready:
            self._try_next_endpoint(pair, "the TLS handshake failed")
            return
        ended_by = "client" if pair.client_ended else "server"
        is_complete = pair.answers.end_completes_a_message() and not was_reset
        if pair.open and is_complete and not pair.client_ended:
            self._end_copy(pair.open.popleft(), "complete")
        while pair.open:
            self._end_copy(pair.open.popleft(), ended_by)
        pair.asking = None
        pair.resets_when_sent = was_reset
        self._flush_client(pair)

    # ------------------------------------------------------------------ copies

    def _begin_copy(self, pair: _Pair, head: Head, came_ns: int) -> None:
        self._count += 1
        passed = PassedExchange(
            number=self._count,
            method=head.method,
            path=head.path,
            started_ns=came_ns,
            started_wall_ns=came_ns + self._offset_ns,
            ended_ns=came_ns,
            request_encoding=head.text(b"content-encoding"),
            secrets=keys_of_head(head),
        )
        copy = _Copy(passed)
        pair.open.append(copy)
        pair.asking = copy
        pair.answers.without_body.append(head.method == "HEAD")

    def _copy_answer(self, pair: _Pair, data: bytes, came_ns: int) -> None:
        """What has just been sent to the client, cut into answers."""
        if not pair.answers_are_read:
            return
        try:
            parts = pair.answers.feed(data)
        except BadMessageError:
            # It is passed on all the same, and not understood any more.
            pair.answers_are_read = False
            while pair.open:
                self._end_copy(pair.open.popleft(), "unread")
            return
        is_preliminary = False
        for part in parts:
            copy = pair.open[0] if pair.open else None
            if copy is None:
                continue
            passed = copy.passed
            passed.ended_ns = came_ns
            if isinstance(part, Head):
                is_preliminary = part.status < 200
                if not is_preliminary:
                    passed.status = part.status
                    passed.content_type = part.text(b"content-type")
                    passed.content_encoding = part.text(b"content-encoding")
            elif isinstance(part, Body):
                if part.data and self._may_keep(copy, part.data):
                    passed.pieces.append((came_ns, part.data))
            elif is_preliminary:
                is_preliminary = False
            else:
                self._end_copy(pair.open.popleft(), "complete")

    def _may_keep(self, copy: _Copy, data: bytes) -> bool:
        passed = copy.passed
        if passed.not_kept:
            return False
        size = len(data) + BYTES_OF_PIECE
        if copy.body_bytes + len(data) > MOST_BODY_BYTES:
            passed.not_kept = f"larger than {MOST_BODY_BYTES >> 20} MiB"
        elif self._kept_bytes + size > MOST_KEPT_BYTES:
            passed.not_kept = "too much passed at the same time"
        if passed.not_kept:
            self._kept_bytes -= copy.bytes_kept
            copy.bytes_kept = 0
            copy.body.clear()
            passed.pieces.clear()
            return False
        copy.body_bytes += len(data)
        copy.bytes_kept += size
        self._kept_bytes += size
        return True

    def _end_copy(self, copy: _Copy, end: str) -> None:
        passed = copy.passed
        passed.end = end
        passed.request = b"".join(copy.body)
        passed.delay_ms = copy.request_delay_ms + copy.answer_delay_ms
        if end != "complete":
            passed.ended_ns = time.monotonic_ns()
        self._kept_bytes -= copy.bytes_kept
        self._hand_over(encoded(passed))

    def _hand_over(self, message: bytes) -> None:
        """Queue a message for the recording process."""
        if (
            not self._sink_is_open
            or self._kept_bytes + len(message) > MOST_KEPT_BYTES + MOST_BODY_BYTES
        ):
            self._not_recorded += 1
            return
        self._kept_bytes += len(message)
        self._unsent.append(memoryview(message))
        if self._sink not in self._selector.get_map():
            self._selector.register(
                self._sink, selectors.EVENT_WRITE, lambda _: self._write_to_sink()
            )

    def _write_to_sink(self) -> None:
        while self._unsent:
            message = self._unsent[0]
            try:
                sent = os.write(self._sink, message[:SINK_WRITE_BYTES])
            except BlockingIOError:
                return
            except OSError:  # the recording process has ended: traffic goes on
                self._sink_is_open = False
                self._not_recorded += len(self._unsent)
                self._unsent.clear()
                break
            self._kept_bytes -= sent
            if sent == len(message):
                self._unsent.popleft()
            else:
                self._unsent[0] = message[sent:]
            if not os.get_blocking(self._sink):
                return  # connections come first
        with suppress(KeyError, ValueError):
            self._selector.unregister(self._sink)
