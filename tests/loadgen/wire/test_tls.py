"""https:// on the wire: trust, resumption, and what goes wrong."""

from __future__ import annotations

import ctypes
import ctypes.util
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import trustme

from llama_load.ground.clock import SO_TIMESTAMPNS
from llama_load.ground.errors import UsageError
from llama_load.loadgen.wire.exchange import Exchange
from llama_load.loadgen.wire.request import Request, Timeouts
from llama_load.loadgen.wire.transport import Transport
from llama_load.servers.address import parse_url
from llama_load.servers.answer import AnswerReader
from llama_load.servers.probe import Probe, ProbeSettings
from llama_load.servers.tls import TlsLayer, TlsOptions
from llama_load.servers.wire_failure import tls_text
from tests.conftest import Finished
from tests.scripted_server import (
    DONE,
    END,
    FINISH,
    GOOD_STREAM,
    STREAM,
    ScriptedServer,
    token,
)

pytestmark = pytest.mark.portable

# The library that Python's ssl has loaded, under its usual name.
OPENSSL = ctypes.util.find_library("ssl")
# SSL_KEY_UPDATE_REQUESTED
ASKS_FOR_AN_ANSWER = 1


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def context(authority: trustme.CA) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", "localhost").configure_cert(made)
    return made


@pytest.fixture(scope="module")
def ca_file(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return path


@pytest.fixture
def transport() -> Iterator[Transport]:
    transport = Transport.of_this_process()
    yield transport
    transport.pool.trust(TlsOptions())


def send(
    transport: Transport, url: str, body: bytes = b"{}"
) -> tuple[Exchange, AnswerReader]:
    reader = AnswerReader()
    timeouts = Timeouts(connect_s=0.5, first_token_s=5, token_s=5)
    return transport.send(
        parse_url(url).resolved(), Request("POST", "/v1/x", (), body), reader, timeouts
    ), reader


def test_a_stream_over_tls_is_stamped_by_the_kernel(
    transport: Transport, context: ssl.SSLContext, ca_file: Path
) -> None:
    """Connected, secured, sent, first token: in this order, and every read has its stamp."""
    transport.pool.trust(TlsOptions(ca_file))
    with ScriptedServer(
        (STREAM, "taken", token("a"), "taken", 0.03, token("b"), FINISH, DONE, END),
        tls=context,
    ) as server:
        exchange, reader = send(transport, server.url)
    assert reader.failure(exchange) is None
    assert reader.text == "ab"
    stamps = [
        exchange.stamps.started_ns,
        exchange.opening.connected_ns,
        exchange.opening.secured_ns,
        exchange.stamps.sent_ns,
        exchange.stamps.first_progress_ns,
    ]
    assert stamps == sorted(stamps)
    assert exchange.counts.user_space_reads == (
        0 if SO_TIMESTAMPNS is not None else exchange.counts.reads
    )
    assert (reader.token_ns[1] - reader.token_ns[0]) / 1e6 >= 30


def test_a_large_body_goes_through_tls_whole(
    transport: Transport, context: ssl.SSLContext, ca_file: Path
) -> None:
    transport.pool.trust(TlsOptions(ca_file))
    with ScriptedServer(GOOD_STREAM, tls=context) as server:
        exchange, reader = send(transport, server.url, b"x" * 5_000_000)
    assert reader.failure(exchange) is None
    assert server.requests[0].endswith(b"x" * 1000)
    assert len(server.requests[0]) > 5_000_000


def test_the_next_connection_resumes_the_session(
    transport: Transport, context: ssl.SSLContext, ca_file: Path
) -> None:
    transport.pool.trust(TlsOptions(ca_file))
    with ScriptedServer(GOOD_STREAM, tls=context) as server:
        first, _ = send(transport, server.url)
        second, reader = send(transport, server.url)
    assert reader.failure(second) is None
    assert (first.opening.tls_resumed, second.opening.tls_resumed) == (False, True)
    assert server.resumed == [False, True]


def test_an_unknown_authority_is_refused_unless_insecure(
    transport: Transport, context: ssl.SSLContext
) -> None:
    with ScriptedServer(GOOD_STREAM, tls=context) as server:
        transport.pool.trust(TlsOptions())
        exchange, reader = send(transport, server.url)
        kind, text = reader.failure(exchange)
        assert kind == "tls"
        assert "not trusted" in text
        transport.pool.trust(TlsOptions(insecure=True))
        exchange, reader = send(transport, server.url)
        assert reader.failure(exchange) is None


def test_a_certificate_for_another_name_is_refused(
    transport: Transport, authority: trustme.CA, ca_file: Path
) -> None:
    other = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("example.org").configure_cert(other)
    transport.pool.trust(TlsOptions(ca_file))
    with ScriptedServer(GOOD_STREAM, tls=other) as server:
        exchange, reader = send(transport, server.url)
    assert reader.failure(exchange)[0] == "tls"


@pytest.mark.parametrize(
    "steps", [(b"HTTP/1.1 400 Bad Request\r\n\r\n",), ("hold",), ()]
)
def test_a_server_without_tls_is_a_tls_failure_or_a_connect_timeout(
    transport: Transport, steps: tuple
) -> None:
    with ScriptedServer(steps, read_request=False) as server:
        exchange, reader = send(transport, server.url.replace("http://", "https://"))
    assert reader.failure(exchange)[0] in ("tls", "connect_timeout")


def asked_for_new_keys(context: ssl.SSLContext, ca_file: Path, times: int) -> TlsLayer:
    """The client's side of a connection whose server has asked for new keys so often, in reads of
    at most 64 KiB. Python's ssl cannot ask, OpenSSL can: its `SSL *` is the fourth field of the
    object."""
    sent = ssl.MemoryBIO()
    received = ssl.MemoryBIO()
    server = context.wrap_bio(received, sent, server_side=True)
    client = TlsLayer(TlsOptions(ca_file).context(), "localhost", None)
    received.write(client.hello())
    for _ in range(2):
        with suppress(ssl.SSLWantReadError):
            server.do_handshake()
        received.write(client.received(sent.read())[0])
    assert client.ready

    library = ctypes.CDLL(OPENSSL)
    library.SSL_key_update.argtypes = (ctypes.c_void_p, ctypes.c_int)
    library.SSL_do_handshake.argtypes = (ctypes.c_void_p,)
    fields = ctypes.cast(id(server._sslobj), ctypes.POINTER(ctypes.c_void_p))  # type: ignore[attr-defined]
    for _ in range(times):
        assert library.SSL_key_update(fields[3], ASKS_FOR_AN_ANSWER) == 1
        assert library.SSL_do_handshake(fields[3]) == 1
    while data := sent.read(64 * 1024):
        reply, _ = client.received(data)
        assert len(reply) <= 64 * 1024
    return client


@pytest.mark.skipif(OPENSSL is None, reason="OpenSSL is not a library of its own")
def test_a_server_that_asks_for_new_keys_without_end_is_refused(
    context: ssl.SSLContext, ca_file: Path
) -> None:
    """Each time it is answered; a server that never reads the answers would fill the memory. A few
    hundred times are taken."""
    asked_for_new_keys(context, ca_file, 500)
    with pytest.raises(ssl.SSLError) as refusal:
        asked_for_new_keys(context, ca_file, 1000)
    assert (
        tls_text(refusal.value)
        == "TLS failed: the server asks for new keys without end"
    )


def test_a_stream_cut_inside_tls_is_cut_off(
    transport: Transport, context: ssl.SSLContext, ca_file: Path
) -> None:
    transport.pool.trust(TlsOptions(ca_file))
    with ScriptedServer((STREAM, token()), tls=context) as server:
        exchange, reader = send(transport, server.url)
    assert reader.failure(exchange)[0] == "cut_off"


def test_plain_http_on_a_tls_port_is_one_sentence(context: ssl.SSLContext) -> None:
    with (
        ScriptedServer(GOOD_STREAM, tls=context) as server,
        pytest.raises(UsageError, match=f"speaks TLS; write {server.url}$"),
    ):
        Probe(ProbeSettings(server.url.replace("https://", "http://"))).ask()


def test_https_on_a_plain_port_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for a server that takes the handshake for the beginning of a request and waits for its
    end, as llama-server does."""
    monkeypatch.setattr("llama_load.servers.probe.TIMEOUT_S", 0.5)
    with (
        ScriptedServer(GOOD_STREAM) as server,
        pytest.raises(UsageError, match=rf"speak plain HTTP\? Try {server.url}$"),
    ):
        Probe(ProbeSettings(server.url.replace("http://", "https://"))).get("/health")


def test_whole_runs_over_https(
    context: ssl.SSLContext,
    ca_file: Path,
    run_locust: Callable[..., Finished],
    tmp_path: Path,
) -> None:
    """With the authority's file or without any trust a good run; without either one sentence and
    exit code 2."""
    with ScriptedServer(GOOD_STREAM, tls=context) as server:
        flags = ("--num-prompts", "2", "--warmup", "0", "--ca-file", str(ca_file))
        done = run_locust(server.url, *flags, folder=tmp_path / "a")
        assert done.code == 0, done.err
        assert done.records.measured().numbers("tls_ms").min() > 0
        assert "Mean TLS handshake (ms):" in done.out
        refused = run_locust(server.url, "--num-prompts", "1", folder=tmp_path / "b")
        assert refused.code == 2
        assert "certificate is not trusted" in refused.err
        assert "--ca-file" in refused.err
        insecure = run_locust(
            server.url, "--num-prompts", "1", "--insecure", folder=tmp_path / "c"
        )
        assert insecure.code == 0, insecure.err
        assert "Warning" not in insecure.err
        nonsense = run_locust(server.url, "--ca-file", __file__, folder=tmp_path / "d")
        assert nonsense.code == 2
        assert "--ca-file must be a readable PEM file" in nonsense.err


def test_ipv6_and_a_base_path_with_v1(run_locust: Callable[..., Finished]) -> None:
    with ScriptedServer(GOOD_STREAM, host="::1") as server:
        done = run_locust(server.url + "/llm/v1/", "--num-prompts", "2")
        assert done.code == 0, done.err
    asked = next(
        request
        for request in server.requests
        if request.startswith(b"POST /llm/v1/chat/completions HTTP/1.1\r\n")
    )
    assert f"Host: [::1]:{server.port}".encode() in asked
