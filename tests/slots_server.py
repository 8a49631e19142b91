"""A loopback server that looks like llama-server, with a known schedule of tokens and a known
fault: when it frees the slot of a user who hung up."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.scripted_server import DONE, END, STREAM, event, token

GAP_S = 0.01


@dataclass
class SlotsServer:
    """`frees_after_s`: from the moment a user hangs up until its slot is free; None: never. A
    request without a free slot waits."""

    frees_after_s: float | None
    slots: int = 4
    busy: int = 0
    waiting: int = 0
    hung_up: int = 0
    looks: int = 0
    url: str = ""
    changed: threading.Condition = field(default_factory=threading.Condition)
    over: threading.Event = field(default_factory=threading.Event)

    def take_slot(self) -> bool:
        """Wait for a slot. False: the server stops."""
        with self.changed:
            self.waiting += 1
            while self.busy >= self.slots and not self.over.is_set():
                self.changed.wait(0.1)
            self.waiting -= 1
            self.busy += 1
        return not self.over.is_set()

    def free_slot(self) -> None:
        with self.changed:
            self.busy -= 1
            self.changed.notify()

    def hang_up(self) -> None:
        """The user of a slot has gone."""
        self.hung_up += 1
        if self.frees_after_s is not None:
            threading.Timer(self.frees_after_s, self.free_slot).start()


@contextmanager
def slots_server(frees_after_s: float | None) -> Iterator[SlotsServer]:
    """The server, until the end of the block."""
    server = SlotsServer(frees_after_s)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            """Nothing is printed."""

        def do_GET(self) -> None:
            slots = [
                {"id": number, "is_processing": number < server.busy}
                for number in range(server.slots)
            ]
            pages: dict[str, Any] = {
                "/health": {"status": "ok"},
                "/v1/models": {
                    "object": "list",
                    "data": [{"id": "m", "object": "model", "owned_by": "llamacpp"}],
                },
                "/props": {
                    "total_slots": server.slots,
                    "default_generation_settings": {"n_ctx": 4096},
                    "model_path": "m.gguf",
                },
                "/slots": slots,
            }
            server.looks += self.path == "/slots"
            if self.path == "/metrics":
                counts = f"llamacpp:requests_processing {server.busy}\nllamacpp:requests_deferred {server.waiting}\n"
                server.looks += 1
                self.answer(200, counts.encode(), "text/plain")
            else:
                self.answer(
                    200 if self.path in pages else 404,
                    json.dumps(pages.get(self.path, {})).encode(),
                )

        def answer(
            self, status: int, body: bytes, kind: str = "application/json"
        ) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if "messages" not in body:
                self.answer(404, b"{}")
                return
            self.close_connection = True
            if not server.take_slot():
                return
            try:
                self.wfile.write(STREAM)
                for number in range(body["max_tokens"]):
                    time.sleep(GAP_S)  # between two tokens
                    self.wfile.write(token(f"{number} "))
                self.wfile.write(
                    event(
                        '{"choices":[{"index":0,"finish_reason":"length","delta":{}}]}'
                    )
                    + DONE
                    + END
                )
            except OSError:
                server.hang_up()
            else:
                server.free_slot()

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

    http = Quiet(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{http.server_address[1]}"
    threading.Thread(target=http.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.over.set()
        http.shutdown()
        http.server_close()
