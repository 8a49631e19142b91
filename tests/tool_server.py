"""A loopback server whose model calls tools: its answers depend on the messages of the request,
which it keeps."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = Callable[[dict[str, Any]], dict[str, Any]]


class ToolServer:
    """`reply(body)` gives the delta of the only event of each answer, {"content": …} or
    {"tool_calls": […]}."""

    def __init__(self, reply: Reply) -> None:
        self.bodies: list[dict[str, Any]] = []
        bodies = self.bodies

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                known = {"/health": {}, "/v1/models": {"data": [{"id": "tools"}]}}
                self._send(
                    200 if self.path in known else 404,
                    "application/json",
                    json.dumps(known.get(self.path, {})),
                )

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if not self.path.endswith("/chat/completions"):
                    self._send(404, "application/json", "{}")
                    return
                bodies.append(body)
                delta = reply(body)
                reason = "tool_calls" if "tool_calls" in delta else "stop"
                usage = {"prompt_tokens": 10, "completion_tokens": 2}
                events = [
                    {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
                    {
                        "choices": [{"index": 0, "delta": {}, "finish_reason": reason}],
                        "usage": usage,
                    },
                ]
                text = (
                    "".join(f"data: {json.dumps(event)}\n\n" for event in events)
                    + "data: [DONE]\n\n"
                )
                self._send(200, "text/event-stream", text)

            def _send(self, status: int, kind: str, text: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> ToolServer:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
