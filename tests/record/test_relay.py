"""The relay passes bytes on as they are, whatever they are and however they are cut."""

from __future__ import annotations

import socket
import threading
import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_load.record import exchange_copies
from llama_load.record import relay as module
from llama_load.record.http_framing import MOST_LINES, Body, End, Head, MessageReader
from llama_load.servers.local_ports import free_port
from tests.record.relayed import RESET, RawServer, connected, received, relayed
from tests.waiting import until

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
TOKEN = st.binary(max_size=300)


def chunked(pieces: list[bytes], trailers: bytes) -> bytes:
    chunks = [b"%x;a=b\r\n%s\r\n" % (len(piece), piece) for piece in pieces if piece]
    return b"".join(chunks) + b"0\r\n" + trailers + b"\r\n"


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """The fields that frame a body, the end of the head, and the body."""
    content = draw(TOKEN)
    if draw(st.booleans()):
        return b"Content-Length: %d\r\n\r\n%s" % (len(content), content)
    pieces = draw(st.lists(TOKEN, max_size=4))
    trailers = draw(st.sampled_from([b"", b"X-Sum: 1\r\n", b"A: 1\r\nB: 2\r\n"]))
    return b"Transfer-Encoding: chunked\r\n\r\n" + chunked(pieces, trailers)


@st.composite
def talks(draw: st.DrawFn) -> list[tuple[bytes, bytes]]:
    """Requests and answers of one connection."""
    found = []
    for _ in range(draw(st.integers(1, 4))):
        early = draw(st.sampled_from([b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"]))  # fmt: skip
        status = draw(st.sampled_from([b"200 OK", b"404 ", b"500 No"]))
        answer = early + b"HTTP/1.1 %s\r\nServer:  y \r\n" % status + draw(bodies())
        found.append((HEAD + draw(bodies()), answer))
    return found


def cut(data: bytes, places: list[float]) -> list[bytes]:
    at = sorted({0, len(data), *(int(place * len(data)) for place in places)})
    return [data[begin:end] for begin, end in pairwise(at)]


CUTS = st.lists(st.floats(0, 1), max_size=6)


@settings(max_examples=settings().max_examples // 2)
@given(talks(), st.lists(CUTS, min_size=8, max_size=8))
def test_bytes_are_the_same_in_both_directions(
    talk: list[tuple[bytes, bytes]], cuts: list[list[float]]
) -> None:
    """Requests and answers on one connection, each sent in random pieces."""
    seen: list[bytes] = []

    def serve(sock: socket.socket) -> None:
        for number, (request, answer) in enumerate(talk):
            seen.append(received(sock, len(request)))
            for piece in cut(answer, cuts[number]):
                sock.sendall(piece)

    got = []
    with RawServer(serve) as server, relayed(server.url) as running:
        with connected(running.port) as client:
            for number, (request, answer) in enumerate(talk):
                for piece in cut(request, cuts[-1 - number]):
                    client.sendall(piece)
                got.append(received(client, len(answer)))
            assert client.recv(1) == b""  # the server has closed
        assert server.connections == 1
    assert seen == [request for request, _ in talk]
    assert got == [answer for _, answer in talk]
    assert [each.end for each in running.exchanges] == ["complete"] * len(talk)


def test_pieces_arrive_as_they_are_sent() -> None:
    """Nothing is held back, and nothing is joined: the client reads each token when it was sent."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    pieces = [head, *(b"2\r\n%02d\r\n" % number for number in range(20)), b"0\r\n\r\n"]

    step = threading.Semaphore(0)

    def serve(sock: socket.socket) -> None:
        received(sock, len(HEAD) + 2)
        for piece in pieces:
            step.acquire(timeout=10)
            sock.sendall(piece)

    with (
        RawServer(serve) as server,
        relayed(server.url) as running,
        connected(running.port) as client,
    ):
        client.sendall(HEAD + b"\r\n")
        for piece in pieces:
            step.release()
            assert client.recv(1 << 16) == piece
    (exchange,) = running.exchanges
    assert b"".join(data for _, data in exchange.pieces) == b"".join(
        b"%02d" % number for number in range(20)
    )
    assert running.figures.pieces >= len(pieces) + 1


@pytest.mark.parametrize("has_read_all", [True, False])
def test_a_client_that_hangs_up_is_seen_by_the_server(has_read_all: bool) -> None:
    """As it would be without the relay: a reset if something was unread, else the stream's end."""
    ended = threading.Event()
    ends = []

    def serve(sock: socket.socket) -> None:
        received(sock, len(HEAD) + 2)
        sock.sendall(b"HTTP/1.1 200 OK\r\n\r\ntext")
        try:
            found = sock.recv(1)
        except ConnectionResetError:
            found = b"reset"
        ends.append(found)
        ended.set()

    with RawServer(serve) as server, relayed(server.url) as running:
        client = connected(running.port)
        client.sendall(HEAD + b"\r\n")
        received(client, 23 if has_read_all else 4)
        client.close()
        assert ended.wait(5)
        until(lambda: running.exchanges)
    assert ends == [b"" if has_read_all else b"reset"]
    assert [each.end for each in running.exchanges] == ["client"]


def test_a_server_that_resets_the_connection_resets_it_for_the_client() -> None:
    def serve(sock: socket.socket) -> None:
        received(sock, len(HEAD) + 2)
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ntext")
        time.sleep(0.1)  # the client has the first part
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)

    with (
        RawServer(serve) as server,
        relayed(server.url) as running,
        connected(running.port) as client,
    ):
        client.sendall(HEAD + b"\r\n")
        assert received(client, 42).endswith(b"text")
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    assert [each.end for each in running.exchanges] == ["server"]


def test_a_server_that_closes_early_is_a_close_for_the_client() -> None:
    def serve(sock: socket.socket) -> None:
        received(sock, len(HEAD) + 2)
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ntext")

    with (
        RawServer(serve) as server,
        relayed(server.url) as running,
        connected(running.port) as client,
    ):
        client.sendall(HEAD + b"\r\n")
        assert received(client, 100).endswith(b"\r\n\r\ntext")
    assert [each.end for each in running.exchanges] == ["server"]


def test_an_answer_that_is_no_http_is_passed_on() -> None:
    def serve(sock: socket.socket) -> None:
        received(sock, len(HEAD) + 2)
        sock.sendall(b"SSH-2.0\r\n\r\nwhatever")

    with (
        RawServer(serve) as server,
        relayed(server.url) as running,
        connected(running.port) as client,
    ):
        client.sendall(HEAD + b"\r\n")
        assert received(client, 100) == b"SSH-2.0\r\n\r\nwhatever"
    assert [each.end for each in running.exchanges] == ["unread"]


def test_no_server_is_a_502() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with relayed(url) as running, connected(running.port) as client:
        client.sendall(HEAD + b"\r\n")
        answer = received(client, 10_000)
    assert answer.startswith(b"HTTP/1.1 502 ")
    assert b"Connection refused" in answer
    assert running.figures.refused == 1


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (HEAD + b"Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n", 501),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: localhost:1\r\n\r\n", 501),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (HEAD + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: gzip\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: \t\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: \x0bchunked\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: chunked\x0c\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: chunked\xa0\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"POST http://a/v1/x HTTP/1.1\r\n\r\n", 400),
        (HEAD + b"Bad Name: 1\r\n\r\n", 400),
        (HEAD + b"A: " + b"x" * (70 << 10), 431),
    ],
)
def test_what_cannot_be_passed_on_is_refused(request_bytes: bytes, status: int) -> None:
    """An upgrade, or a request that a server might read in another way than the relay."""
    seen = []

    def serve(sock: socket.socket) -> None:
        while data := sock.recv(1 << 16):
            seen.append(data)

    with (
        RawServer(serve) as server,
        relayed(server.url) as running,
        connected(running.port) as client,
    ):
        client.sendall(request_bytes)
        answer = received(client, 10_000)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert not any(b"zz" in data for data in seen)


def test_a_slow_client_slows_the_server_down() -> None:
    """An answer of 64 MiB that nobody reads stays in the kernel's buffers, not in the relay."""
    sent = [0]

    def serve(sock: socket.socket) -> None:
        received(sock, len(HEAD) + 2)
        sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        sock.settimeout(0.5)
        try:
            while sent[0] < 64 << 20:
                sent[0] += sock.send(b"x" * (1 << 16))
        except TimeoutError:
            return

    with (
        RawServer(serve) as server,
        relayed(server.url) as running,
        connected(running.port) as client,
    ):
        client.sendall(HEAD + b"\r\n")
        assert client.recv(4) == b"HTTP"
        time.sleep(1)  # the client reads nothing meanwhile
        assert sent[0] < 32 << 20


def test_bodies_that_are_too_large_pass_unrecorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exchange_copies, "MOST_BODY_BYTES", 1 << 16)
    body = b"x" * (1 << 20)

    def serve(sock: socket.socket) -> None:
        request = received(sock, len(HEAD) + len(body) + 27)
        assert request.endswith(body)
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
        sock.sendall(body)
        sock.recv(1)

    with (
        RawServer(serve) as server,
        relayed(server.url) as running,
        connected(running.port) as client,
    ):
        client.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert received(client, len(body) + 44).endswith(body)
    (exchange,) = running.exchanges
    assert exchange.not_kept
    assert not exchange.request and not exchange.pieces


KEY = "relay-key-0123456789"


def test_a_key_is_wanted_and_does_not_reach_the_server() -> None:
    seen = []

    def serve(sock: socket.socket) -> None:
        seen.append(sock.recv(1 << 16))
        sock.sendall(b"HTTP/1.1 204 No\r\n\r\n")

    keys = [b"", b"Authorization: Bearer wrong\r\n", b"Authorization: Bearer %s\r\n", b"x-api-key: %s\r\n"]  # fmt: skip
    statuses = []
    with RawServer(serve) as server, relayed(server.url, key=KEY) as running:
        for line in keys:
            with connected(running.port) as client:
                client.sendall(HEAD + line.replace(b"%s", KEY.encode()) + b"\r\n")
                statuses.append(received(client, 10_000)[9:12])
    assert statuses == [b"401", b"401", b"204", b"204"]
    assert seen == [HEAD + b"\r\n"] * 2


@pytest.mark.parametrize("said", [b"", b"POST / HTTP/1.1\r\nA: "])
def test_silent_connections_of_a_recording_keep_nobody_out(
    said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three times as many as have a place, each silent or in the middle of a head."""
    monkeypatch.setattr(module, "MOST_CLIENTS", 20)

    def serve(sock: socket.socket) -> None:
        received(sock, len(HEAD) + 2)
        sock.sendall(b"HTTP/1.1 204 No\r\n\r\n")

    with RawServer(serve) as server, relayed(server.url) as running:
        held = [connected(running.port) for _ in range(60)]
        for silent in held:
            try:
                silent.sendall(said)
            except OSError:  # it has made room
                pass
        with connected(running.port) as client:
            client.sendall(HEAD + b"\r\n")
            assert client.recv(12) == b"HTTP/1.1 204"
        assert server.connections == 1
        for silent in held:
            silent.close()


def test_clients_of_a_recording_that_say_nothing_are_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "HEAD_WITHIN_S", 0.2)
    with RawServer(lambda _: None) as server, relayed(server.url) as running:
        with connected(running.port) as silent:
            assert silent.recv(1) == b""
        with connected(running.port) as slow:
            slow.sendall(b"GET / HT")
            assert received(slow, 12) == b"HTTP/1.1 408"


def answers_largely(sock: socket.socket) -> None:
    """More than sockets hold, or nothing but a head to who asks for it by HEAD."""
    request = sock.recv(1 << 16)
    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
    if not request.startswith(b"HEAD"):
        for _ in range(1000):
            sock.sendall(b"x" * 100_000)


def test_clients_that_read_nothing_keep_nobody_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who has taken nothing of its answer for the longest time makes room."""
    monkeypatch.setattr(module, "MOST_CLIENTS", 4)
    with RawServer(answers_largely) as server, relayed(server.url) as running:
        held = [connected(running.port) for _ in range(4)]
        for client in held:
            client.sendall(HEAD + b"\r\n")
        pairs = running.relay._pairs
        until(lambda: sum(each.reads_by_s is not None for each in list(pairs)) == 4)
        with connected(running.port) as client:
            client.sendall(b"HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.recv(12) == b"HTTP/1.1 200"
        for each in held:
            each.close()


def test_a_client_that_reads_nothing_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "READ_WITHIN_S", 0.1)
    with (
        RawServer(answers_largely) as server,
        relayed(server.url) as running,
        connected(running.port) as client,
    ):
        client.sendall(HEAD + b"\r\n")
        pairs = running.relay._pairs
        until(lambda: any(each.reads_by_s for each in list(pairs)))
        until(lambda: not pairs)
        client.settimeout(10)
        with pytest.raises(ConnectionResetError):
            while client.recv(1 << 20):
                pass


def test_many_requests_at_once_do_not_hold_up_those_of_others() -> None:
    """They are taken one by one, in turns with all others."""

    def serve(sock: socket.socket) -> None:
        while sock.recv(1 << 16):
            sock.sendall(b"HTTP/1.1 204 No\r\n\r\n")

    with (
        RawServer(serve) as server,
        relayed(server.url) as running,
        connected(running.port) as flood,
        connected(running.port) as client,
    ):
        flood.sendall(b"GET / HTTP/1.1\r\n\r\n" * 5000)
        client.sendall(b"GET /mine HTTP/1.1\r\n\r\n")
        assert received(client, 12) == b"HTTP/1.1 204"
        flood.close()
    number = next(each.number for each in running.exchanges if each.path == "/mine")
    assert number < 200


def test_a_step_ends_with_a_message_or_many_chunks() -> None:
    reader = MessageReader(reads_answers=False)
    data = b"GET / HTTP/1.1\r\n\r\n" * 3
    parts, rest = reader.step(data)
    assert [type(part) for part in parts] == [Head, End]
    assert len(rest) == len(data) // 3 * 2
    chunks = b"1\r\na\r\n" * 40_000
    head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    parts, rest = MessageReader(reads_answers=False).step(head + chunks)
    assert len(rest) > len(chunks) - 4 * MOST_LINES
    whole = MessageReader(reads_answers=False).feed(head + chunks + b"0\r\n\r\n")
    assert (
        b"".join(part.data for part in whole if isinstance(part, Body)) == b"a" * 40_000
    )


def test_pipelined_requests_are_paired_with_their_answers() -> None:
    def serve(sock: socket.socket) -> None:
        received(sock, 2 * (len(HEAD) + 2))
        sock.sendall(b"HTTP/1.1 201 A\r\nContent-Length: 1\r\n\r\naHTTP/1.1 202 B\r\nContent-Length: 1\r\n\r\nb")  # fmt: skip
        sock.recv(1)

    with RawServer(serve) as server, relayed(server.url) as running:
        with connected(running.port) as client:
            client.sendall((HEAD + b"\r\n") * 2)
            received(client, 2 * 38)
        until(lambda: len(running.exchanges) == 2)
    assert [(each.status, each.end) for each in running.exchanges] == [(201, "complete"), (202, "complete")]  # fmt: skip
