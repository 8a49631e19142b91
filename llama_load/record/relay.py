"""The relay between clients and a server: bytes go on as they come, unchanged and unbuffered.

Each client's connection has one connection to the server. Whatever one side does (keep-alive, the
end of its stream, a reset) the other side sees. Copies of what passed are understood later, in
another process; here they are cut into exchanges.
"""

from __future__ import annotations

import os
import selectors
import socket
import ssl
import struct
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus

import msgspec

from llama_load.ground.clock import (
    ANCILLARY_BYTES,
    SO_TIMESTAMPNS,
    kernel_stamp_ns,
    wall_minus_mono_ns,
)
from llama_load.ground.units import ns_to_ms
from llama_load.loadgen.wire.limits import open_files
from llama_load.loadgen.wire.priority import SenderPriority
from llama_load.outside.bound_headers import NO_HEADERS, BoundHeaders
from llama_load.record.connection_pair import ConnectionPair, Handler
from llama_load.record.delay_counts import DelayCounts
from llama_load.record.exchange_copies import ExchangeCopies
from llama_load.record.http_framing import (
    BadMessageError,
    Body,
    Head,
    HeadTooLargeError,
    Part,
)
from llama_load.record.passed_exchange import RelayFigures, encoded
from llama_load.record.request_gate import RequestGate
from llama_load.servers.address import Address
from llama_load.servers.tls import TlsLayer, TlsOptions

READ_BYTES = 256 << 10
# As on our other ports: who sends no whole head within this time is cut off.
HEAD_WITHIN_S = 10.0
# Who sends nothing more of a body for so long, too.
BODY_WITHIN_S = 30.0
CONNECT_WITHIN_S = 10.0
# Who takes nothing of an answer for so long, too; and is the first to make room before.
READ_WITHIN_S = 30.0
# Requests that wait for their answers on one connection. More are read when those are answered.
MOST_PIPELINED = 8
# Two descriptors a client, and half of them stay for the rest of the process.
SHARE_OF_FILES = 4
MOST_CLIENTS = 2048
# What a refused client still sends is read so long, so that it sees the answer.
DISCARD_WITHIN_S = 2.0
_TICK_S = 0.5
_RESET = struct.pack("ii", 1, 0)  # linger for 0 s: closing sends a reset


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
        self._has_key = key is not None
        self._gate = RequestGate(to, key, server_keys)
        self._context: ssl.SSLContext | None = None
        if to.scheme == "https":
            self._context = (tls or TlsOptions()).context()
        self._delays = DelayCounts()
        self._refused = 0
        self._pairs: OrderedDict[ConnectionPair, None] = OrderedDict()
        # Those with unread requests, which are taken in turns.
        self._unread: OrderedDict[ConnectionPair, None] = OrderedDict()
        self._stops = False
        self._offset_ns = wall_minus_mono_ns()
        self._selector = selectors.DefaultSelector()
        self._copies = ExchangeCopies(sink, self._selector)
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
            for key, events in self._selector.select(0 if self._unread else _TICK_S):
                handle: Callable[[int], None] = key.data
                handle(events)
            if self._unread:
                pair, _ = self._unread.popitem(last=False)
                self._take_requests(pair)
                self._watch(pair)
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
            elif pair.reads_by_s is not None and now_s >= pair.reads_by_s:
                self._close(pair, ended_by="client", reset=True)
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
        self._copies.hand_over(encoded(self._figures()))
        self._copies.write_all()
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
            not_recorded=self._copies.not_recorded,
            lost_cookies=self._gate.lost_cookies,
        )

    # ------------------------------------------------------------------ connections

    def _accept(self, _: int) -> None:
        try:
            client, _address = self._listener.accept()
        except OSError:  # it has gone again, or no descriptor is left
            return
        most = min(MOST_CLIENTS, max(1, open_files() // SHARE_OF_FILES))
        if len(self._pairs) >= most:
            leaves = self._first_to_make_room()
            if leaves is None:
                client.close()
                return
            self._close(leaves, ended_by="client")
        self._set_up(client)
        head_by_s = time.monotonic() + HEAD_WITHIN_S
        pair = ConnectionPair(client, head_by_s, drops_additions=self._has_key)
        pair.on_client = lambda events: self._on_client(pair, events)
        pair.on_server = lambda events: self._on_server(pair, events)
        self._pairs[pair] = None
        self._watch(pair)

    def _first_to_make_room(self) -> ConnectionPair | None:
        """The client that has taken nothing of its answer for the longest time, else the oldest
        without a request, else with a part of one."""
        waiting = [pair for pair in self._pairs if pair.reads_by_s is not None]
        if waiting:
            return min(waiting, key=lambda pair: pair.reads_by_s or 0.0)
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

    def _connect(self, pair: ConnectionPair) -> None:
        pair.endpoints_left = list(self._to.endpoints)
        self._try_next_endpoint(pair, "has no address")

    def _try_next_endpoint(self, pair: ConnectionPair, why: str) -> None:
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

    def _drop_server(self, pair: ConnectionPair) -> None:
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

    def _close(
        self, pair: ConnectionPair, *, ended_by: str = "", reset: bool = False
    ) -> None:
        """Close both connections. `reset`: both sides see a reset, as one of them has sent."""
        if pair not in self._pairs:
            return
        del self._pairs[pair]
        for copy in pair.open:
            self._copies.end(copy, ended_by)
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

    def _watch(self, pair: ConnectionPair) -> None:
        """Wait for what can be done next. A side is not read while the other one takes nothing."""
        if pair not in self._pairs:
            return
        if pair.client_ended and pair.server_ended and not pair.to_client:
            self._close(pair, ended_by="server")
            return
        reads_client = not (
            pair.client_ended
            or pair.unread
            or pair.to_server
            or pair.plain
            or _asks_enough(pair)
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

    def _on_client(self, pair: ConnectionPair, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._flush_client(pair)
        if events & selectors.EVENT_READ and pair in self._pairs:
            self._read_client(pair)
        self._watch(pair)

    def _read_client(self, pair: ConnectionPair) -> None:
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
        pair.unread = data
        pair.unread_came_ns = came_ns
        self._take_requests(pair)

    def _take_requests(self, pair: ConnectionPair) -> None:
        """One request, or a part of one, of what the client has sent."""
        if pair not in self._pairs or not pair.unread or _asks_enough(pair):
            return
        try:
            parts, pair.unread = pair.requests.step(pair.unread)
        except HeadTooLargeError as error:
            self._refuse(pair, 431, f"this request cannot be passed on: {error}")
            return
        except BadMessageError as error:
            self._refuse(pair, 400, f"this request cannot be passed on: {error}")
            return

        came_ns = pair.unread_came_ns
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
        self._come_back_to(pair)

    def _come_back_to(self, pair: ConnectionPair) -> None:
        """To unread requests, after those of others and all that is to be sent."""
        if pair in self._pairs and pair.unread and not _asks_enough(pair):
            self._unread[pair] = None

    def _end_of_client(self, pair: ConnectionPair) -> None:
        """The client sends nothing more: so the server is told, which decides what that means."""
        pair.client_ended = True
        if pair.server is None or pair.tls is not None:
            self._close(pair, ended_by="client")
            return
        self._flush_server(pair)

    def _take_request_part(
        self, pair: ConnectionPair, part: Part, came_ns: int
    ) -> bool:
        """False: it was refused."""
        if isinstance(part, Head):
            fault = self._gate.fault_of(part)
            if fault is not None:
                self._refuse(pair, *fault)
                return False
            copy = self._copies.begin(part, came_ns, self._offset_ns)
            pair.ask(copy, part)
            pair.send_to_server(self._gate.as_sent(part))
            if pair.server is None and not pair.discards:
                self._connect(pair)
        elif isinstance(part, Body):
            pair.send_to_server(part.raw)
            if pair.asking is not None:
                self._copies.keep_request(pair.asking, part.data)
        else:
            pair.asking = None
        return pair in self._pairs

    def _flush_client(self, pair: ConnectionPair) -> None:
        if pair.to_client:
            try:
                sent = pair.client.send(pair.to_client)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._close(pair, ended_by="client", reset=True)
                return
            del pair.to_client[:sent]
            if pair.to_client:
                pair.client_is_slow = True
                if sent or pair.reads_by_s is None:
                    pair.reads_by_s = time.monotonic() + READ_WITHIN_S
                return
        pair.reads_by_s = None
        if pair.client_is_slow:
            pair.client_is_slow = False
            pair.client_held_until_ns = time.monotonic_ns()
        if pair.resets_when_sent:
            self._close(pair, ended_by="server", reset=True)
        elif (pair.server_ended or pair.discards) and not pair.end_to_client_is_sent:
            pair.end_to_client_is_sent = True
            with suppress(OSError):
                pair.client.shutdown(socket.SHUT_WR)

    def _refuse(self, pair: ConnectionPair, status: int, sentence: str) -> None:
        """Answer a request instead of the server, and read no further one."""
        self._refused += 1
        is_answering = len(pair.open) > 1 or not pair.answers.is_between
        if is_answering or pair.discards:
            self._close(pair, ended_by="client")
            return
        for copy in pair.open:
            copy.passed.status = status
            self._copies.end(copy, "relay")
        pair.open.clear()
        self._drop_server(pair)
        pair.to_server.clear()
        pair.plain.clear()
        pair.unread = b""
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

    def _on_server(self, pair: ConnectionPair, events: int) -> None:
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

    def _flush_server(self, pair: ConnectionPair) -> None:
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

    def _count_request_delay(self, pair: ConnectionPair) -> None:
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

    def _read_server(self, pair: ConnectionPair, server: socket.socket) -> None:
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
        self._come_back_to(pair)

    def _decrypted(self, pair: ConnectionPair, tls: TlsLayer, data: bytes) -> bytes:
        was_ready = tls.ready
        reply, plain = tls.received(data)
        pair.to_server += reply
        if tls.ready and not was_ready and pair.plain:
            pair.to_server += tls.encrypt(bytes(pair.plain))
            pair.plain.clear()
        if pair.to_server:
            self._flush_server(pair)
        return plain

    def _end_of_answers(self, pair: ConnectionPair, *, was_reset: bool) -> None:
        """The server's side ended: the client sees the same, once it has what came before."""
        pair.server_ended = True
        if pair.tls is not None and not pair.tls.ready:
            self._try_next_endpoint(pair, "the TLS handshake failed")
            return
        ended_by = "client" if pair.client_ended else "server"
        is_complete = pair.answers.end_completes_a_message() and not was_reset
        if pair.open and is_complete and not pair.client_ended:
            self._copies.end(pair.open.popleft(), "complete")
        while pair.open:
            self._copies.end(pair.open.popleft(), ended_by)
        pair.asking = None
        pair.resets_when_sent = was_reset
        self._flush_client(pair)

    def _copy_answer(self, pair: ConnectionPair, data: bytes, came_ns: int) -> None:
        """What has just been sent to the client, cut into answers."""
        if not pair.answers_are_read:
            return
        try:
            parts = pair.answers.feed(data)
        except BadMessageError:
            # It is passed on all the same, and not understood any more.
            pair.answers_are_read = False
            while pair.open:
                self._copies.end(pair.open.popleft(), "unread")
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
                    self._gate.learn_cookies(part)
                    passed.status = part.status
                    passed.content_type = part.text(b"content-type")
                    passed.content_encoding = part.text(b"content-encoding")
            elif isinstance(part, Body):
                self._copies.keep_answer(copy, part.data, came_ns)
            elif is_preliminary:
                is_preliminary = False
            else:
                self._copies.end(pair.open.popleft(), "complete")


def _asks_enough(pair: ConnectionPair) -> bool:
    """Whether a client waits for so many answers that no further request is read."""
    return len(pair.open) >= MOST_PIPELINED
