"""`llama-load telemetry`: a Prometheus exporter of this machine's GPUs, host and meter.

A run on another machine scrapes it.
"""

from __future__ import annotations

import io
import math
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from llama_load.loadgen.wire.local_names import is_of_strangers
from llama_load.loadgen.wire.request_heads import BoundedHead
from llama_load.outside.bound_headers import AUTHORIZATION, is_bearer
from llama_load.telemetry.prometheus import PREFIX
from llama_load.telemetry.source import Source, SourceError, Value

PATH = "/metrics"
# Answers younger than this are given again: several scrapers cost no more than one.
FRESH_S = 0.2
# A client that sends nothing is cut off after this time; of more clients than this, the oldest.
CLIENT_WITHIN_S = 5.0
MOST_CLIENTS = 64


class Page:
    """The newest values of some sources as a page of metrics. Safe for several threads."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self._lock = threading.Lock()
        self._text = b""
        self._made_s = -math.inf

    def text(self) -> bytes:
        """The page; a source that does not answer has only `up 0`."""
        with self._lock:
            if time.monotonic() - self._made_s > FRESH_S:
                self._text = "".join(map(_text_of, self._sources)).encode()
                self._made_s = time.monotonic()
            return self._text


def _text_of(source: Source) -> str:
    """The lines of a source."""
    label = (("source", source.name),)
    try:
        values = list(source.sample())
    except SourceError:
        return _exposed_line(Value("source_up", 0.0, label))
    values.append(Value("source_up", 1.0, label))
    return "".join(map(_exposed_line, values))


def _exposed_line(value: Value) -> str:
    labels = []
    for name, text in value.labels:
        labels.append(f'{name}="{_escaped(text)}"')
    series = f"{PREFIX}{value.metric}{{{','.join(labels)}}}"
    return f"{series} {value.value!r}\n"


def _escaped(text: str) -> str:
    text = text.replace("\\", "\\\\")
    text = text.replace('"', '\\"')
    return text.replace("\n", "\\n")


class Exporter(ThreadingHTTPServer):
    """Serves the page at /metrics; with a token only to those who send it."""

    daemon_threads = True
    # of the kernel; socketserver's 5 make connections wait a second
    request_queue_size = 128

    def __init__(self, host: str, port: int, page: Page, token: str | None) -> None:
        """Raises OSError if it cannot listen there."""
        self.page = page
        self.token = token
        self._clients: dict[Any, None] = {}  # open connections, the oldest first
        self._of_clients = threading.Lock()
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """See socketserver. The oldest connection makes room, so silent ones keep nobody out."""
        with self._of_clients:
            while len(self._clients) >= MOST_CLIENTS:
                oldest = next(iter(self._clients))
                del self._clients[oldest]
                _cut(oldest)
            self._clients[request] = None

        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no more threads
            self._forget(request)
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """See socketserver."""
        # Whatever the client does: a slow one must not keep its place.
        watchdog = threading.Timer(CLIENT_WITHIN_S, _cut, (request,))
        watchdog.daemon = True
        watchdog.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            watchdog.cancel()
            self._forget(request)

    def _forget(self, request: Any) -> None:
        with self._of_clients:
            self._clients.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no error here."""


def _cut(sock: socket.socket) -> None:
    """End a connection, also one that a thread waits for."""
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: Exporter
    timeout = CLIENT_WITHIN_S
    server_version = "llama-load"
    sys_version = ""

    def parse_request(self) -> bool:
        """See http.server."""
        connection = self.rfile
        self.rfile = cast(io.BufferedIOBase, BoundedHead(connection))
        try:
            return super().parse_request()
        finally:
            self.rfile = connection

    def do_GET(self) -> None:
        given = self.headers.get(AUTHORIZATION, "")
        token = self.server.token
        hosts = self.headers.get_all("Host", [])
        if token is None and any(map(is_of_strangers, hosts)):
            self._answer(HTTPStatus.FORBIDDEN, b"that is no name of this machine\n")
        elif token is not None and not is_bearer(given, token):
            self._answer(HTTPStatus.UNAUTHORIZED, b"the token is missing or wrong\n")
        elif self.path != PATH:
            self._answer(HTTPStatus.NOT_FOUND, b"metrics are at /metrics\n")
        else:
            self._answer(HTTPStatus.OK, self.server.page.text())

    def _answer(self, status: HTTPStatus, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing: a line a second would fill the terminal."""
