"""Requests to a server besides those of the load: one connection each, with a bound for the whole
answer in time and in bytes.

No redirect is followed (a key must not go to another server) and no proxy of the environment is
used, as for the load.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import SplitResult, urlsplit

from llama_load.outside.bound_headers import (
    NO_HEADERS,
    BoundHeaders,
    Headers,
    UnsendableError,
    field_lines,
    origin_of,
)

WITHIN_S = 30.0
# Model lists with metadata and chat templates stay far below.
MOST_BYTES = 32 << 20
MOST_HEAD_BYTES = 64 << 10
READ_BYTES = 1 << 16


class NoAnswerError(Exception):
    """There is no whole answer; the text says why. An OSError is its cause."""


class LateError(NoAnswerError):
    """There was no whole answer in time."""


@dataclass(slots=True)
class Answer:
    """An answer. Names of headers are in lower case; of several with one name the last counts.
    `connected_in_ms`: how long its connection took to open."""

    status: int = 0
    reason: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes = b""
    connected_in_ms: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether it is no error."""
        return 0 < self.status < 400

    @property
    def text(self) -> str:
        """The body as text."""
        return self.content.decode("utf-8", "replace")

    def json(self) -> Any:
        """Its JSON value. Raises ValueError if it is not JSON, also for lone surrogates, NaN and
        Infinity."""
        from llama_load.outside.foreign_json import (
            decode_foreign,  # the sampler of telemetry does without
        )

        return decode_foreign(self.content)


def request(
    method: str,
    url: str,
    headers: BoundHeaders = NO_HEADERS,
    body: bytes = b"",
    *,
    harmless: Iterable[tuple[str, str]] = (),
    within_s: float = WITHIN_S,
    most_bytes: int = MOST_BYTES,
    tls: Callable[[], ssl.SSLContext] | None = None,
) -> Answer:
    """The answer of a server at a valid http(s) URL. `harmless`: headers that hold no key. `tls`
    makes the context of https, by default one that trusts the system's CAs. Raises NoAnswerError,
    and OtherServerError: the headers are for another server."""
    deadline_s = time.monotonic() + within_s
    try:
        parts = urlsplit(url)
        message = _message(
            method, parts, (*headers.for_origin(origin_of(url)), *harmless), body
        )
        return _exchange(parts, message, deadline_s, most_bytes, tls)
    except TimeoutError:
        raise LateError(f"no complete answer within {within_s:g} s") from None
    except OSError as error:  # ssl.SSLError is one
        raise NoAnswerError(f"does not answer: {error.strerror or error}") from error
    except (UnicodeError, UnsendableError):
        raise NoAnswerError("has a name or header that cannot be sent") from None


def tls_context(
    ca_file: str | None = None, *, insecure: bool = False
) -> ssl.SSLContext:
    """Verification by the system's CAs, by those in `ca_file`, or (`insecure`) none. Raises
    OSError: the file cannot be used."""
    context = ssl.create_default_context(cafile=ca_file)
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class Session:
    """Requests with the same headers and TLS context. `connected_in_ms`: the shortest time in which
    one of them opened its connection; None: none has."""

    def __init__(
        self,
        headers: BoundHeaders = NO_HEADERS,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._headers = headers
        self._tls = None if tls is None else cache(tls)
        self.connected_in_ms: float | None = None

    def get(
        self, url: str, *, within_s: float = WITHIN_S, most_bytes: int = MOST_BYTES
    ) -> Answer:
        """See `request`."""
        answer = request(
            "GET",
            url,
            self._headers,
            within_s=within_s,
            most_bytes=most_bytes,
            tls=self._tls,
        )
        return self._timed(answer)

    def post(self, url: str, value: Any, *, within_s: float = WITHIN_S) -> Answer:
        """Send a value as JSON, or bytes that are JSON. See `request`."""
        import msgspec

        body = value if isinstance(value, bytes) else msgspec.json.encode(value)
        about = (("Content-Type", "application/json"),)
        answer = request(
            "POST",
            url,
            self._headers,
            body,
            harmless=about,
            within_s=within_s,
            most_bytes=MOST_BYTES,
            tls=self._tls,
        )
        return self._timed(answer)

    def _timed(self, answer: Answer) -> Answer:
        shortest = self.connected_in_ms
        if shortest is None or answer.connected_in_ms < shortest:
            self.connected_in_ms = answer.connected_in_ms
        return answer


def _message(method: str, parts: SplitResult, headers: Headers, body: bytes) -> bytes:
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: {parts.netloc.rpartition('@')[2]}",
        "Connection: close",
        "Accept: */*",
    ]
    lines += [f"Content-Length: {len(body)}"] if method == "POST" else []
    lines += field_lines(headers)
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


def _exchange(
    parts: SplitResult,
    message: bytes,
    deadline_s: float,
    most_bytes: int,
    tls: Callable[[], ssl.SSLContext] | None,
) -> Answer:
    is_tls = parts.scheme == "https"
    port = parts.port or (443 if is_tls else 80)
    plain, connected_in_ms = _connected(parts.hostname or "", port, deadline_s)
    with plain:
        # Timeouts of a socket are those of one read: in a TLS handshake a peer could begin them
        # again with each byte.
        copy = plain.dup()  # TLS takes the socket away from `plain`
        end = threading.Timer(
            max(0.01, deadline_s - time.monotonic()), _shut_down, [copy]
        )
        end.daemon = True
        end.start()
        try:
            with (
                (tls or _system_tls)().wrap_socket(
                    plain, server_hostname=parts.hostname
                )
                if is_tls
                else plain as sock
            ):
                sock.sendall(message)
                answer = _read(sock, most_bytes)
        except (OSError, NoAnswerError):
            if time.monotonic() >= deadline_s:  # it ended because it was shut down
                raise TimeoutError from None
            raise
        finally:
            end.cancel()
            copy.close()
        if time.monotonic() >= deadline_s:
            raise TimeoutError
        answer.connected_in_ms = connected_in_ms
        return answer


@cache
def _system_tls() -> ssl.SSLContext:
    return ssl.create_default_context()


def _connected(host: str, port: int, deadline_s: float) -> tuple[socket.socket, float]:
    """A connection to one of the host's addresses, and how long it took to open, in ms; all
    addresses together have until the deadline."""
    fault: OSError = TimeoutError()
    for *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        began_s = time.monotonic()
        left_s = deadline_s - began_s
        if left_s <= 0:
            raise TimeoutError
        try:
            connection = socket.create_connection(
                (str(address[0]), port), timeout=left_s
            )
        except OSError as error:
            fault = error
            continue
        connected_in_ms = (time.monotonic() - began_s) * 1e3
        connection.settimeout(None)
        return connection, connected_in_ms
    raise fault


def _shut_down(sock: socket.socket) -> None:
    with suppress(OSError, ValueError):
        sock.shutdown(socket.SHUT_RDWR)


class _Reader:
    """What httptools reports of an answer."""

    def __init__(self) -> None:
        import httptools

        self.parser = httptools.HttpResponseParser(self)
        self.answer = Answer()
        self.body = bytearray()
        self.has_head = self.is_complete = False

    def on_message_begin(self) -> None:
        self.answer = Answer()
        self.has_head = False

    def on_status(self, status: bytes) -> None:
        self.answer.reason += status.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        self.answer.headers[name.lower().decode("latin-1")] = value.strip().decode(
            "latin-1"
        )

    def on_headers_complete(self) -> None:
        self.answer.status = self.parser.get_status_code()
        self.has_head = self.answer.status >= 200

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.is_complete = self.has_head  # else it was 100 Continue or 103 Early Hints


def _read(sock: socket.socket, most_bytes: int) -> Answer:
    """The answer. Every byte is parsed once, in whatever pieces it comes."""
    import httptools

    reader = _Reader()
    size = 0
    while not reader.is_complete:
        try:
            piece = sock.recv(READ_BYTES)
        except (ConnectionResetError, ssl.SSLEOFError):
            raise NoAnswerError(
                "closed the connection "
                f"{'in the middle of its answer' if size else 'without an answer'}"
            ) from None
        if not piece:
            break
        size += len(piece)
        if size > most_bytes:
            raise NoAnswerError(f"sends more than {most_bytes >> 20} MiB")
        try:
            reader.parser.feed_data(piece)
        except httptools.HttpParserUpgrade:  # it is no HttpParserError
            raise NoAnswerError("tries to switch protocols") from None
        except httptools.HttpParserError:
            raise NoAnswerError(
                "sends an answer that is no HTTP"
                if reader.has_head
                else "sends no HTTP answer"
            ) from None
        if not reader.has_head and size > MOST_HEAD_BYTES:
            raise NoAnswerError("sends no HTTP answer")
    if not reader.has_head:
        raise NoAnswerError(
            "sends no HTTP answer"
            if size
            else "closed the connection without an answer"
        )
    headers = reader.answer.headers
    # Without a length the answer ends with its connection.
    is_chunked = "chunked" in headers.get("transfer-encoding", "").lower()
    if not reader.is_complete and (
        is_chunked or headers.get("content-length", "0") != "0"
    ):
        raise NoAnswerError("closed the connection in the middle of its answer")
    reader.answer.content = bytes(reader.body)
    return reader.answer
