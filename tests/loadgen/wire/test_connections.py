"""Connections that are used again: when, when not, and what happens to one that was dead."""

from __future__ import annotations

import socket
import ssl
import time
from pathlib import Path
from typing import Any

import gevent
import pytest
import trustme

from llama_load.loadgen.wire import connection as connection_module
from llama_load.loadgen.wire.exchange import Exchange
from llama_load.loadgen.wire.request import GiveUp, Request, Timeouts
from llama_load.loadgen.wire.transport import Transport
from llama_load.run_folder.arithmetic.latencies import own_delay_ms
from llama_load.servers.address import parse_url
from llama_load.servers.answer import AnswerReader
from llama_load.servers.tls import TlsOptions
from tests.scripted_server import (
    DONE,
    END,
    FINISH,
    GOOD_STREAM,
    STREAM,
    ScriptedServer,
    chunk,
    token,
)

pytestmark = pytest.mark.portable


def ask(url: str, *, reuse: bool = True) -> tuple[Exchange, tuple[str, str] | None]:
    reader = AnswerReader()
    request = Request("POST", "/v1/chat/completions", (), b"{}", reuse=reuse)
    exchange = Transport.of_this_process().send(
        parse_url(url).resolved(), request, reader, Timeouts(60, 60, 60)
    )
    return exchange, reader.failure(exchange)


@pytest.fixture(autouse=True)
def _none_left() -> None:
    Transport.of_this_process().pool.close_parked()


def test_a_connection_is_used_again_if_asked() -> None:
    """Five requests, one connection; connecting is stamped once and is no part of the others."""
    with ScriptedServer(GOOD_STREAM, per_connection=5) as server:
        exchanges = [ask(server.url) for _ in range(5)]
    assert [failure for _, failure in exchanges] == [None] * 5
    assert server.connections == 1
    assert [exchange.reused for exchange, _ in exchanges] == [
        False,
        True,
        True,
        True,
        True,
    ]
    assert [exchange.opening.connected_ns is None for exchange, _ in exchanges] == [
        False,
        True,
        True,
        True,
        True,
    ]
    assert all(
        exchange.stamps.started_ns
        <= exchange.stamps.sent_ns
        <= exchange.stamps.headers_ns
        for exchange, _ in exchanges
    )
    assert b"Connection: keep-alive" in server.requests[0]


def test_no_connection_is_used_again_unless_asked() -> None:
    with ScriptedServer(GOOD_STREAM, per_connection=5) as server:
        exchanges = [ask(server.url, reuse=False) for _ in range(3)]
    assert server.connections == 3
    assert not any(exchange.reused for exchange, _ in exchanges)


def test_as_many_connections_as_requests_in_flight() -> None:
    with ScriptedServer((STREAM, 0.2, *GOOD_STREAM[1:]), per_connection=5) as server:
        for _ in range(2):
            gevent.joinall([gevent.spawn(ask, server.url) for _ in range(4)])
    assert server.connections == 4


def test_a_parked_connection_that_the_server_closed_is_forgotten() -> None:
    with ScriptedServer(GOOD_STREAM, per_connection=1) as server:
        ask(server.url)
        gevent.sleep(0.1)  # the end has to arrive on a connection that nobody reads
        exchange, failure = ask(server.url)
    assert failure is None
    assert not exchange.reused
    assert not exchange.reopened


@pytest.mark.parametrize("last_word", [b"", "reset"])
def test_a_reused_connection_that_dies_before_the_answer_is_reopened_once(
    last_word: bytes | str,
) -> None:
    """The server reads the second request on the connection, then closes it without a word, as a
    race at an idle timeout does."""

    class Fickle(ScriptedServer):
        def _play(self, connection) -> None:
            if len(self.requests) == 2:
                self.steps = (last_word,)
                super()._play(connection)
                self.steps = GOOD_STREAM
                raise OSError
            super()._play(connection)

    with Fickle(GOOD_STREAM, per_connection=3) as server:
        ask(server.url)
        exchange, failure = ask(server.url)
    assert failure is None
    assert (exchange.reused, exchange.reopened) == (False, True)
    assert exchange.opening.connected_ns > exchange.stamps.started_ns
    assert len(server.requests) == 3


def test_a_reused_connection_that_dies_in_the_answer_is_a_failure() -> None:
    class Dying(ScriptedServer):
        def _play(self, connection) -> None:
            if len(self.requests) == 2:
                connection.sendall(STREAM + token())
                raise OSError
            super()._play(connection)

    with Dying(GOOD_STREAM, per_connection=3) as server:
        ask(server.url)
        exchange, failure = ask(server.url)
    assert failure[0] == "cut_off"
    assert exchange.reused
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    "steps",
    [
        (
            STREAM.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
            *GOOD_STREAM[1:],
        ),
        (*GOOD_STREAM[:-1], END + b"more than was asked for"),
        (*GOOD_STREAM[:-1], END + b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        (STREAM.replace(b"HTTP/1.1", b"HTTP/1.0"), *GOOD_STREAM[1:]),
    ],
    ids=["connection: close", "surplus bytes", "surplus answer", "HTTP/1.0"],
)
def test_a_connection_that_cannot_be_trusted_is_not_used_again(
    steps: tuple[bytes, ...],
) -> None:
    with ScriptedServer(steps, per_connection=3) as server:
        exchanges = [ask(server.url)[0] for _ in range(2)]
    assert not any(exchange.reused for exchange in exchanges)
    assert server.connections == 2


def test_a_refusal_leaves_the_connection_open() -> None:
    with ScriptedServer(
        (b"HTTP/1.1 429 Slow down\r\nContent-Length: 2\r\n\r\n{}",), per_connection=3
    ) as server:
        exchanges = [ask(server.url) for _ in range(3)]
    assert [failure[0] for _, failure in exchanges] == ["overloaded"] * 3
    assert server.connections == 1


def test_a_tls_connection_is_used_again(tmp_path: Path) -> None:
    """One handshake for three requests."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    Transport.of_this_process().pool.trust(TlsOptions(tmp_path / "ca.pem"))
    with ScriptedServer(GOOD_STREAM, tls=context, per_connection=3) as server:
        exchanges = [ask(server.url) for _ in range(3)]
    assert [failure for _, failure in exchanges] == [None] * 3
    assert [exchange.opening.secured_ns is None for exchange, _ in exchanges] == [
        False,
        True,
        True,
    ]
    assert server.connections == 1


def test_a_chunk_after_the_last_one_never_reaches_the_next_answer() -> None:
    with ScriptedServer(
        (*GOOD_STREAM, chunk(b"data: stale\n\n")), per_connection=2
    ) as server:
        first = ask(server.url)
        gevent.sleep(0.05)  # the chunk has to arrive on a connection that nobody reads
        second = ask(server.url)
    assert (first[1], second[1]) == (None, None)
    assert server.connections == 2


def test_a_reused_connection_that_dies_late_is_the_servers_failure() -> None:
    """It had a second to work on the request: a gateway's time-out or a crash, not a stale
    connection."""

    class Slow(ScriptedServer):
        def _play(self, connection) -> None:
            if len(self.requests) == 2:
                time.sleep(1.1)  # a server that works
                raise OSError
            super()._play(connection)

    with Slow(GOOD_STREAM, per_connection=3) as server:
        ask(server.url)
        exchange, failure = ask(server.url)
    assert failure[0] == "cut_off"
    assert not exchange.reopened


def test_an_answer_that_nobody_asked_for_is_not_taken_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that says 408 and closes while the connection is parked, and a loop that has not
    seen it yet."""
    farewell = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with ScriptedServer((*GOOD_STREAM, 0.05, farewell)) as server:
        ask(server.url)
        time.sleep(0.2)  # the loop does not run
        exchange, failure = ask(server.url)
    assert failure is None
    assert not exchange.reused


def test_a_large_body_on_an_open_connection_is_no_delay_of_ours() -> None:
    """12 MB to a server that begins to read 0.3 s late: the own delay ends with the first write."""
    reads_from_ns = []

    class Late(ScriptedServer):
        def _play(self, connection) -> None:
            super()._play(connection)
            if len(self.requests) == 1:
                time.sleep(0.3)  # a server that is late
                reads_from_ns.append(time.monotonic_ns())

    with Late(GOOD_STREAM, per_connection=2) as server:
        ask(server.url)
        reader = AnswerReader()
        request = Request(
            "POST", "/v1/chat/completions", (), b"x" * 12_000_000, reuse=True
        )
        exchange = Transport.of_this_process().send(
            parse_url(server.url).resolved(), request, reader, Timeouts(60, 60, 60)
        )
    assert exchange.reused
    delay_ms = own_delay_ms(
        exchange.stamps.started_ns,
        None,
        None,
        first_write_ns=exchange.stamps.first_write_ns,
    )
    assert exchange.stamps.started_ns + delay_ms * 1e6 < reads_from_ns[0]
    assert exchange.stamps.sent_ns > reads_from_ns[0]


def test_the_first_write_is_stamped_before_it_wakes_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On one core the server may run as soon as it is sent to: 50 ms of that are its time, not an
    own delay of ours, which no latency includes."""
    write = connection_module.Connection._write

    class Slow:
        """A socket whose sender is held up once it has sent."""

        def __init__(self, sock: socket.socket) -> None:
            self.sock = sock

        def __getattr__(self, name: str) -> object:
            return getattr(self.sock, name)

        def sendmsg(self, *parts: object) -> int:
            count = self.sock.sendmsg(*parts)
            time.sleep(0.05)  # another process has the core
            return count

    def slowly(self: connection_module.Connection) -> None:
        whole = self._sock
        self._sock = Slow(whole)
        try:
            write(self)
        finally:
            if self._sock is not None:
                self._sock = whole

    with ScriptedServer(GOOD_STREAM, per_connection=2) as server:
        ask(server.url)
        monkeypatch.setattr(connection_module.Connection, "_write", slowly)
        exchange, failure = ask(server.url)
    assert failure is None
    assert exchange.reused
    stamps = exchange.stamps
    assert stamps.sent_ns - stamps.first_write_ns >= 50_000_000


def test_an_early_answer_does_not_stop_the_rest_of_the_body() -> None:
    """The server answers its first token before it has read the request: the rest is sent
    nevertheless."""

    class Early(ScriptedServer):
        def _play(self, connection) -> None:
            connection.sendall(STREAM + token("a"))
            time.sleep(0.2)  # a server that is late
            got = 0
            while got < 20_000_000:
                got += len(connection.recv(1 << 20))
            connection.sendall(b"".join(GOOD_STREAM[1:]))

    with Early(GOOD_STREAM, read_request=False) as server:
        reader = AnswerReader()
        request = Request("POST", "/v1/chat/completions", (), b"x" * 20_000_000)
        exchange = Transport.of_this_process().send(
            parse_url(server.url).resolved(), request, reader, Timeouts(60, 60, 60)
        )
    assert reader.failure(exchange) is None
    assert reader.text == "aab"


def test_a_socket_that_the_receiver_cannot_take_is_read_in_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kernel limits how many descriptors a user watches."""
    transport = Transport.of_this_process()
    poller = transport.pool.poller
    if transport.receiver_thread is None:
        pytest.skip("there is no compiled receiver in this installation")

    class Full:
        def __getattr__(self, name: str) -> Any:
            return getattr(poller_receiver, name)

        def add(self, _: int) -> int:
            raise OSError(28, "No space left on device")

    poller_receiver = poller._receiver
    monkeypatch.setattr(poller, "_receiver", Full())
    with ScriptedServer((STREAM, token(), token(), FINISH, DONE, END)) as server:
        reader = AnswerReader()
        address = parse_url(server.url).resolved()
        exchange = transport.send(
            address, Request("POST", "/"), reader, Timeouts(60, 60, 60)
        )
    assert reader.failure(exchange) is None
    assert len(reader.token_ns) == 2


def test_a_user_waits_from_the_start_of_the_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not from a moment before it: here the machine stands still between the two."""
    start = Exchange.start

    def start_late(exchange: Exchange) -> None:
        time.sleep(0.1)  # the machine stands still
        start(exchange)

    monkeypatch.setattr(Exchange, "start", start_late)
    request = Request("POST", "/", give_up=GiveUp(after_s=0.1))
    with ScriptedServer((STREAM, "hold")) as server:
        exchange = Transport.of_this_process().send(
            parse_url(server.url).resolved(),
            request,
            AnswerReader(),
            Timeouts(60, 60, 60),
        )
    assert exchange.aborted
    assert exchange.stamps.ended_ns - exchange.stamps.started_ns >= 100e6


def test_a_name_has_a_bounded_number_of_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each is tried for the connect timeout: 4000 of them, as DNS can answer, would take a request
    eleven hours."""
    answers = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.1.{part}.1", 80))
        for part in range(200)
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answers * 2)
    found = parse_url("http://many.example").resolved().endpoints
    assert found == tuple((family, name) for family, _, _, _, name in answers[:16])
