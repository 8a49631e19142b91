"""One GET with a bound for the whole answer, in time and in bytes: HTTP/1.0, whose answers end with their connection."""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import suppress
from urllib.parse import urlsplit

from llama_load.foreign_text import printable
from llama_load.telemetry.source import SourceError

WITHIN_S = 10.0  # llama-server answers between two batches; a long prompt is one
MOST_BYTES = 8 << 20
MOST_HEAD_BYTES = 64 << 10


def get(url: str, headers: tuple[tuple[str, str], ...] = (), tls: ssl.SSLContext | None = None) -> bytes:
    """The body of a 200 answer. Raises SourceError for everything else; no redirect is followed. `url` is a valid http(s) URL."""
    deadline_s = time.monotonic() + WITHIN_S
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = [f"GET {path} HTTP/1.0", f"Host: {parts.netloc.rpartition('@')[2]}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers]
    try:
        with socket.create_connection((parts.hostname, port), timeout=WITHIN_S) as plain:
            sock = (
                plain
                if parts.scheme != "https"
                else (tls or ssl.create_default_context()).wrap_socket(plain, server_hostname=parts.hostname)
            )
            with sock:
                sock.settimeout(max(0.01, deadline_s - time.monotonic()))
                sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
                return _body(_read(sock, deadline_s))
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


def _read(sock: socket.socket, deadline_s: float) -> bytes:
    data = bytearray()
    while True:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        sock.settimeout(left_s)
        try:
            piece = sock.recv(1 << 16)
        except ConnectionResetError:
            raise SourceError("closed the connection in the middle of its answer") from None
        if not piece:
            return bytes(data)
        data += piece
        if len(data) > MOST_BYTES:
            raise SourceError(f"sends more than {MOST_BYTES >> 20} MiB")


def _body(answer: bytes) -> bytes:
    head, separator, body = answer.partition(b"\r\n\r\n")
    if not separator or len(head) > MOST_HEAD_BYTES:
        raise SourceError("sends no HTTP answer")
    first, *fields = head.decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    if not first.startswith("HTTP/") or len(words) < 2 or words[1] != "200":
        raise SourceError(f"answers {printable(first.partition(' ')[2], 60) or 'nothing'}")
    told = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in fields)}
    if "chunked" in told.get("transfer-encoding", "").lower():
        body = _unchunked(body)
    with suppress(ValueError):
        if len(body) < int(told.get("content-length", "0")):
            raise SourceError("closed the connection in the middle of its answer")
    return body


def _unchunked(body: bytes) -> bytes:
    """Chunks, which some servers send to HTTP/1.0 too."""
    found = bytearray()
    while True:
        size, separator, rest = body.partition(b"\r\n")
        try:
            length = int(size.partition(b";")[0], 16)
        except ValueError:
            length = -1
        if not separator or length < 0 or len(rest) < length:
            raise SourceError("closed the connection in the middle of its answer")
        if not length:
            return bytes(found)
        found += rest[:length]
        body = rest[length + 2 :]
