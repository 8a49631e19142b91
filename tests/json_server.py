"""A server whose answers are given path by path: what odd servers and gateways say."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


class JsonServer(http.server.ThreadingHTTPServer):
    """Serves the given answers by path: a text, another JSON value, (status, text, JSON value or
    bytes, headers), or a function of the request's JSON that gives one of these. A path may have a
    method before it: "POST /v1/models". Other paths are those of "*", else 404."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.answers = answers
        self.headers: list[dict[str, str]] = []
        self.asked: list[str] = []  # paths, in order
        self.date_s: float | None = None  # what its clock shows; None: the time
        self.bodies: list[tuple[str, Any]] = []  # path and JSON of each POST
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.headers.append(dict(self.headers))
        self.server.asked.append(self.path)
        asked = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            given = json.loads(asked or b"null")
        except ValueError:  # a form
            given = asked
        if asked:
            self.server.bodies.append((self.path, given))
        answers = self.server.answers
        other = answers.get("*", (404, {}, {}))
        found = answers.get(
            f"{self.command} {self.path}", answers.get(self.path, other)
        )
        if callable(found):
            found = found(given)
        status, value, headers = found if isinstance(found, tuple) else (200, found, {})
        text = (
            value
            if isinstance(value, str)
            else json.dumps(value)
            if not isinstance(value, bytes)
            else ""
        )
        body = value if isinstance(value, bytes) else text.encode()
        self.send_response(status)
        for name, text in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def date_time_string(self, timestamp: float | None = None) -> str:
        return super().date_time_string(
            self.server.date_s if timestamp is None else timestamp
        )

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def json_server(answers: Mapping[str, Any]) -> Iterator[JsonServer]:
    server = JsonServer(answers)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def streamed(*events: Any) -> tuple[int, bytes, dict[str, str]]:
    """An event stream of these JSON values, with [DONE]."""
    lines = [*(json.dumps(event) for event in events), "[DONE]"]
    return (
        200,
        "".join(f"data: {line}\n\n" for line in lines).encode(),
        {"Content-Type": "text/event-stream"},
    )
