"""Each listener's own code in this process, fed with the bytes of one stranger: no port, no program."""

from __future__ import annotations

import os
import selectors
import socket
from collections.abc import Callable
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import flask
import flask_login

from llama_load.loadgen.live.run_metrics import RunMetrics
from llama_load.page.bounded_server import BoundedServer, _Connection
from llama_load.page.bounded_server import _Handler as PageHandler
from llama_load.page.guard import WebGuard
from llama_load.page.metrics_page import metrics_answer
from llama_load.record.exchange_copies import ExchangeCopies
from llama_load.record.http_framing import BadMessageError, Head, MessageReader
from llama_load.record.request_gate import RequestGate
from llama_load.servers.address import parse_url
from llama_load.telemetry.exporter import Exporter, Page, _Handler

TOKEN = "0123456789abcdef0123"
LOOPBACK = "127.0.0.1"
# What only who is let in reads.
ON_PAGE = b"what is for who has the token"
PASSED_ON = b"passed on: "

# What a listener makes of the bytes of one connection: what it answers.
Listener = Callable[[bytes], bytes]


def _served(application: Any) -> Listener:
    """By the web server of the page and of --metrics-port."""
    server = BoundedServer((LOOPBACK, 0), application, log=None, error_log=None)
    server.update_environ()

    def answer(data: bytes) -> bytes:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            handler = PageHandler(theirs, (LOOPBACK, 1), server, BytesIO(data))
            connection = _Connection(handler.handle)
            connection.start()
            connection.join()
            return received(ours)

    return answer


def received(sock: socket.socket) -> bytes:
    sock.setblocking(False)
    pieces = []
    while True:
        try:
            piece = sock.recv(1 << 20)
        except BlockingIOError:
            break
        if not piece:
            break
        pieces.append(piece)
    return b"".join(pieces)


def page(*, web_login: bool = False) -> Listener:
    """Locust's page behind our guard."""
    app = flask.Flask("page")
    app.secret_key = TOKEN
    login = flask_login.LoginManager()
    login.init_app(app)
    login.user_loader(lambda _: None)

    @app.route("/")
    @flask_login.login_required
    def index() -> str:
        return ON_PAGE.decode()

    options = SimpleNamespace(
        web_login=web_login, web_token=TOKEN, web_port=8089, web_host=LOOPBACK
    )
    for name in ("ui_folder", "web_host_display_name", "web_base_path", "tls_cert"):
        setattr(options, name, None)
    environment = SimpleNamespace(
        parsed_options=options,
        host=None,
        user_classes=[],
        web_ui=SimpleNamespace(app=app, host=LOOPBACK, web_login=web_login),
    )
    WebGuard(environment)
    return _served(app)


def metrics_port() -> Listener:
    """--metrics-port with a token."""
    return _served(metrics_answer(RunMetrics(), TOKEN, is_local=True))


def exporter() -> Listener:
    """`llama-load telemetry` with a token."""
    serving = Exporter(LOOPBACK, 0, Page([]), TOKEN)
    serving.server_close()

    def answer(data: bytes) -> bytes:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            # What it does not read waits in the kernel, which takes several times a head.
            ours.setblocking(False)
            ours.send(data)
            ours.shutdown(socket.SHUT_WR)
            _Handler(theirs, (LOOPBACK, 1), serving)
            return received(ours)

    return answer


def recorder(*, key: str | None = TOKEN) -> Listener:
    """`llama-load record`: framing, gate and copy of requests. Answers with the heads that go on
    to the server, behind `PASSED_ON`."""
    gate = RequestGate(parse_url("http://127.0.0.1:9").resolved(), key)
    copies = ExchangeCopies(
        os.open(os.devnull, os.O_WRONLY), selectors.SelectSelector()
    )

    def answer(data: bytes) -> bytes:
        try:
            parts = MessageReader(reads_answers=False).feed(data)
        except BadMessageError as error:
            return str(error).encode()
        passed = [PASSED_ON]
        for part in parts:
            if isinstance(part, Head):
                fault = gate.fault_of(part)
                if fault is not None:
                    return fault[1].encode()
                passed.append(gate.as_sent(part))
                copies.begin(part, 0, 0)
        return b"".join(passed)

    return answer
