"""One GET with a bound for the whole answer, in time and in bytes: HTTP/1.0, whose answers end with their connection."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from contextlib import suppress
from urllib.parse import urlsplit

from llama_load.foreign_text import printable
from llama_load.telemetry.source import SourceError

WITHIN_S = 10.0  # llama-server answers between two batches; a long prompt is one
MOST_BYTES = 8 << 20
MOST_HEAD_BYTES = 64 << 10
READ_BYTES = 1 << 16


def get(url: str, headers: tuple[tuple[str, str], ...] = (), tls: ssl.SSLContext | None = None) -> bytes:
    """The body of a 200 answer. Raises SourceError for everything else; no redirect is followed. `url` is a valid http(s) URL."""
    deadline_s = time.monotonic() + WITHIN_S
    parts = urlsplit(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = [f"GET {path} HTTP/1.0", f"Host: {parts.netloc.rpartition('@')[2]}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers]
    try:
        request = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        with _connected(parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80), deadline_s) as plain:
            # Timeouts of a socket are those of one read: in a TLS handshake a peer could begin them again with each byte.
            copy = plain.dup()  # TLS takes the socket away from `plain`
            end = threading.Timer(max(0.01, deadline_s - time.monotonic()), _shut_down, [copy])
            end.daemon = True
            end.start()
            try:
                context = None if parts.scheme != "https" else tls or ssl.create_default_context()
                with plain if context is None else context.wrap_socket(plain, server_hostname=parts.hostname) as sock:
                    sock.sendall(request)
                    body = _read(sock)
                if time.monotonic() >= deadline_s:  # it ended because it was shut down
                    raise TimeoutError
                return body
            except (OSError, SourceError):
                if time.monotonic() >= deadline_s:
                    raise TimeoutError from None
                raise
            finally:
                end.cancel()
                end.join()
                copy.close()
    except TimeoutError:
        raise SourceError(f"no complete answer within {WITHIN_S:g} s") from None
    except OSError as error:  # ssl.SSLError is one
        raise SourceError(f"does not answer: {error.strerror or error}") from None
    except UnicodeError:
        raise SourceError("has a name or header that cannot be sent") from None


def tls_context(ca_file: str | None, insecure: bool) -> ssl.SSLContext:
    """What https connections trust. (As `wire.tls.TlsOptions.context`; importing that would import gevent.)"""
    context = ssl.create_default_context(cafile=ca_file)
    if insecure:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _connected(host: str, port: int, deadline_s: float) -> socket.socket:
    """A connection to one of the host's addresses; all of them together have until the deadline."""
    fault: OSError = TimeoutError()
    for *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        try:
            connection = socket.create_connection((str(address[0]), port), timeout=left_s)
        except OSError as error:
            fault = error
            continue
        connection.settimeout(None)
        return connection
    raise fault


def _shut_down(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


class _Answer:
    """What httptools reports of an answer."""

    def __init__(self) -> None:
        self.body = bytearray()
        self.head_bytes = 0
        self.reason = b""
        self.length: int | None = None
        self.is_chunked = self.has_head = self.is_complete = False

    def on_status(self, status: bytes) -> None:
        self.reason += status

    def on_header(self, name: bytes, value: bytes) -> None:
        name, value = name.lower(), value.strip().lower()
        if name == b"content-length":
            self.length = int(value)  # the parser refuses others than numbers
        elif name == b"transfer-encoding":
            self.is_chunked = b"chunked" in value

    def on_headers_complete(self) -> None:
        self.has_head = True

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.is_complete = True


def _read(sock: socket.socket) -> bytes:
    """The body. Every byte is parsed once, in whatever pieces it comes."""
    import httptools

    answer = _Answer()
    parser = httptools.HttpResponseParser(answer)
    size = 0
    while not answer.is_complete:
        try:
            piece = sock.recv(READ_BYTES)
        except (ConnectionResetError, ssl.SSLEOFError):
            raise SourceError("closed the connection in the middle of its answer") from None
        if not piece:
            break
        size += len(piece)
        if size > MOST_BYTES:
            raise SourceError(f"sends more than {MOST_BYTES >> 20} MiB")
        try:
            parser.feed_data(piece)
        except httptools.HttpParserError:
            if not answer.has_head:
                raise SourceError("sends no HTTP answer") from None
            if parser.get_status_code() == 200:
                raise SourceError("sends an answer that is no HTTP") from None
        if not answer.has_head and size > MOST_HEAD_BYTES:
            raise SourceError("sends no HTTP answer")
        if answer.has_head and (status := parser.get_status_code()) != 200:
            raise SourceError(f"answers {printable(f'{status} ' + answer.reason.decode('latin-1'), 60)}")
    if not answer.has_head:
        raise SourceError("sends no HTTP answer")
    # Without a length the answer ends with its connection.
    if not answer.is_complete and (answer.is_chunked or answer.length):
        raise SourceError("closed the connection in the middle of its answer")
    return bytes(answer.body)
