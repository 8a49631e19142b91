"""The server in Python: every shape of answer and every fault, a thread per connection.

    python -m truth.server.plain --port 0 --log FILE --case ID --answers JSON

It prints its port, and writes the log at SIGTERM. A thread waits for its turn, so that it is late
by some tenths of a millisecond with a few streams and by milliseconds with dozens: the log has the
true instants, and the server's lateness.
"""

from __future__ import annotations

import argparse
import hashlib
import heapq
import json
import math
import os
import signal
import socket
import struct
import sys
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from truth.cases import Answers
from truth.log import Entry, write_log
from truth.prompts import digest
from truth.server.dialects import FORMS, TAILS, UNENDED
from truth.server.http import Reader, Request, prompt_texts, prompt_tokens, whole_answer
from truth.server.shapes import MODEL, Asked, Step, cut
from truth.server.stamps import ask_for_stamps, send_stamped
from truth.units import NS_PER_MS, NS_PER_S, percentile

STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\n"
    b"Content-Type: text/event-stream\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
STREAM_END = b"0\r\n\r\n"
PATHS = {
    "/v1/chat/completions": True,
    "/v1/completions": False,
}  # whether it is the chat API
# A thread each: others on the machine must not fill its memory.
MOST_CONNECTIONS = 4096
STALL_S = 1.0
SLOW_HEADERS_S = 0.05
GRACE_S = 0.5
# between the parts of an event, so that each is a segment of its own
PIECE_PAUSE_S = 0.0002
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with a reset
STATUS = {"rate_limited": 429, "refused": 500, "page": 200}
PAGE = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 32\r\n\r\n"
    b"<html>the upstream is out</html>"
)
# The fault "in_turn" is another of these for each request that has one; no refusal after which a
# client may send the request again.
FAULTS_IN_TURN = (
    "cut",
    "reset",
    "error_event",
    "no_finish",
    "refused",
    "stall",
    "slow_headers",
)


class Closed(Exception):
    """The connection has ended, by the case's fault or by the client."""


@dataclass
class Answer:
    """An answer while it is sent."""

    entry: Entry
    sent: list[int] = field(default_factory=list)
    kernel: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    late_max_ns: int = 0

    def finished(self, outcome: str) -> Entry:
        """As it stands in the log."""
        return replace(
            self.entry,
            outcome=outcome,
            ended_ns=time.monotonic_ns(),
            sent_ns=tuple(self.sent),
            kernel_ns=tuple(self.kernel),
            event_tokens=tuple(self.tokens),
            late_max_ns=self.late_max_ns,
        )


class Server:
    """`serve` accepts connections until the process ends; `entries` and `late_ns` are its log."""

    def __init__(self, answers: Answers, port: int) -> None:
        self.answers = answers
        self.entries: dict[int, Entry] = {}
        self.late_ns: list[int] = []
        self._lock = threading.Lock()
        self._connections = 0  # that are open
        self._began_ns = time.monotonic_ns()
        self._free_ns = [0] * answers.slots  # a heap: when each slot is free
        self._listener = socket.create_server(("127.0.0.1", port), backlog=4096)
        self.port: int = self._listener.getsockname()[1]

    def serve(self) -> None:
        """Accept connections."""
        while True:
            connection, _ = self._listener.accept()
            with self._lock:
                is_full = self._connections >= MOST_CONNECTIONS
                self._connections += not is_full
            if is_full:
                connection.close()
                continue
            thread = threading.Thread(
                target=self._connection, args=(connection,), daemon=True
            )
            thread.start()

    def _connection(self, connection: socket.socket) -> None:
        try:
            self._requests_of(connection)
        finally:
            with self._lock:
                self._connections -= 1

    def _requests_of(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ask_for_stamps(connection)
        reader = Reader(connection)
        with connection:
            try:
                while request := reader.next():
                    self._request(connection, request)
                    if request.closes:
                        return
            except (OSError, Closed):
                return

    def _request(self, connection: socket.socket, request: Request) -> None:
        path = request.path.split("?")[0]
        if request.method == "GET" and path == "/health":
            connection.sendall(whole_answer("200 OK", {"status": "ok"}))
        elif request.method == "GET" and path == "/v1/models":
            model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "truth"}
            connection.sendall(
                whole_answer("200 OK", {"object": "list", "data": [model]})
            )
        elif request.method == "POST" and path in PATHS:
            self._completion(connection, request, path)
        else:
            connection.sendall(whole_answer("404 Not Found", _error("not here")))

    def _completion(
        self, connection: socket.socket, request: Request, path: str
    ) -> None:
        try:
            body = json.loads(request.body)
            tokens = int(
                body.get("max_completion_tokens") or body.get("max_tokens") or 0
            )
        except (ValueError, TypeError, AttributeError):
            connection.sendall(
                whole_answer("400 Bad Request", _error("no JSON object"))
            )
            return
        if tokens < 1 or not body.get("stream"):
            message = "give max_tokens, and stream: true"
            connection.sendall(whole_answer("400 Bad Request", _error(message)))
            return

        chat = PATHS[path]
        asked = Asked(
            number=0,
            tokens=tokens,
            prompt_tokens=prompt_tokens(body, chat),
            prompt_sha256=self._digest(body, chat),
            choices=int(body.get("n") or 1),
            usage=bool((body.get("stream_options") or {}).get("include_usage")),
            ignore_eos=bool(body.get("ignore_eos")),
            chat=chat,
        )
        self._stream(connection, request, asked)

    def _digest(self, body: dict[str, Any], chat: bool) -> str:
        if not self.answers.prompt_digests:
            return ""
        return digest(prompt_texts(body, chat))

    def _stream(
        self, connection: socket.socket, request: Request, asked: Asked
    ) -> None:
        answer = self._enter(request, asked)
        number = answer.entry.number
        asked = replace(asked, number=number)
        fault = self._fault_of(number)

        outcome = "client closed"
        try:
            outcome = self._send(connection, answer, asked, fault)
        except OSError as error:
            raise Closed from error
        finally:
            self.entries[number] = answer.finished(outcome)
        is_broken = outcome != "ok" and fault not in STATUS
        if is_broken or self.answers.shape in UNENDED:
            raise Closed

    def _fault_of(self, number: int) -> str:
        """Of the request with this number; empty for none."""
        fault = self.answers.fault
        if not fault or number % self.answers.fault_every:
            return ""
        if fault == "in_turn":
            place = number // self.answers.fault_every
            return FAULTS_IN_TURN[place % len(FAULTS_IN_TURN)]
        return fault

    def _enter(self, request: Request, asked: Asked) -> Answer:
        """Give the request its number, and its place in the log."""
        with self._lock:
            number = len(self.entries) + 1
            entry = Entry(
                number=number,
                received_ns=request.received_ns,
                request_id=request.headers.get("x-request-id", ""),
                outcome="unfinished",
                path=request.path,
                body_bytes=len(request.body),
                body_sha256=hashlib.sha256(request.body).hexdigest(),
                prompt_tokens=asked.prompt_tokens,
                prompt_sha256=asked.prompt_sha256,
                choices=asked.choices,
                ignore_eos=asked.ignore_eos,
                tokens=asked.tokens,
            )
            self.entries[number] = entry
        return Answer(entry)

    def _send(
        self, connection: socket.socket, answer: Answer, asked: Asked, fault: str
    ) -> str:
        """Send the answer, or what the fault leaves of it: the outcome."""
        if fault in STATUS:
            return _refuse(connection, answer, fault)
        if fault == "slow_headers":
            time.sleep(SLOW_HEADERS_S)
        connection.sendall(STREAM_HEAD)

        steps = FORMS[self.answers.shape](asked)
        base_ns = self._base_ns(answer.entry)
        events = 0
        for step in steps:
            here = events == self.answers.fault_after and step.tokens > 0
            if here and fault and not _fails(connection, fault):
                return fault
            if here and fault == "stall":
                base_ns += round(STALL_S * NS_PER_S)
            self._send_step(connection, answer, step, base_ns, events)
            events += step.tokens > 0
        if self.answers.shape not in UNENDED:
            connection.sendall(STREAM_END)
        return "ok"

    def _base_ns(self, entry: Entry) -> int:
        """When the first token is scheduled, without jitter."""
        first_ns = round(self.answers.first_token_ms * NS_PER_MS)
        base = self._begin_ns(entry) + first_ns
        if self.answers.synchronous:
            interval_ns = round(self.answers.interval_ms * NS_PER_MS)
            steps = math.ceil((base - self._began_ns) / interval_ns)
            base = self._began_ns + steps * interval_ns
        return base

    def _begin_ns(self, entry: Entry) -> int:
        """When the request gets its slot: at once, or when it is its turn. Both follow from the law
        alone, so that a late thread delays no other request."""
        if not self.answers.slots:
            return entry.received_ns
        rest_ns = self._offset_ns(entry.number, entry.tokens - 1)
        first_ns = round(self.answers.first_token_ms * NS_PER_MS)
        with self._lock:
            begin_ns = max(entry.received_ns, self._free_ns[0])
            heapq.heapreplace(self._free_ns, begin_ns + first_ns + rest_ns)
        return begin_ns

    def _send_step(
        self,
        connection: socket.socket,
        answer: Answer,
        step: Step,
        base_ns: int,
        events: int,
    ) -> None:
        scheduled_ns = base_ns + self._offset_ns(answer.entry.number, events)
        if step.early:
            scheduled_ns = base_ns - round(self.answers.first_token_ms * NS_PER_MS / 2)
        wait_until(scheduled_ns)

        if not step.data:
            return  # an empty chunk would end the stream
        frame = b"%x\r\n%b\r\n" % (len(step.data), step.data)
        parts = cut(frame, step.pieces)
        for part in parts[:-1]:
            connection.sendall(part)
            time.sleep(PIECE_PAUSE_S)

        now = time.monotonic_ns()
        stamped = step.tokens > 0 and (not answer.sent or self.answers.stamp_all)
        if stamped:
            answer.kernel.append(send_stamped(connection, parts[-1]))
        else:
            connection.sendall(parts[-1])
        if step.tokens:
            late_ns = now - scheduled_ns
            self.late_ns.append(late_ns)
            answer.late_max_ns = max(answer.late_max_ns, late_ns)
            answer.sent.append(now)
            answer.tokens.append(step.tokens)

    def _offset_ns(self, number: int, events: int) -> int:
        """Of an event after the first, with its jitter, which depends on the numbers only, as does
        the request's own interval where there are slots."""
        jitter_ms = (2 * _drawn(number, events) - 1) * self.answers.jitter_ms
        interval_ms = self.answers.interval_ms
        if self.answers.slots:
            interval_ms *= -math.log(1 - _drawn(number, 0))
        return round((events * interval_ms + jitter_ms) * NS_PER_MS)

    def about(self, case: str, priority: str) -> dict[str, Any]:
        """What it measured of itself."""
        late = self.late_ns or [0]
        tokens = sum(entry.output_tokens for entry in self.entries.values())
        return {
            "program": "plain.py",
            "case": case,
            "cpu_s": time.process_time(),
            "tokens": tokens,
            "priority": priority,
            "late_p50_ns": round(percentile(late, 50)),
            "late_p99_ns": round(percentile(late, 99)),
        }


def _drawn(number: int, events: int) -> float:
    """Between 0 and 1, always the same for these numbers."""
    seed = hashlib.sha256(b"%d %d" % (number, events)).digest()
    return int.from_bytes(seed[:6], "big") / (1 << 48)


def _refuse(connection: socket.socket, answer: Answer, fault: str) -> str:
    """An answer without a stream: an error at once."""
    status = STATUS[fault]
    answer.entry = replace(answer.entry, status=status)
    if status == 200:
        connection.sendall(PAGE)
    elif status == 429:
        value = _error("too many requests")
        connection.sendall(
            whole_answer("429 Too Many Requests", value, "Retry-After: 1")
        )
    else:
        connection.sendall(
            whole_answer("500 Internal Server Error", _error("out of order"))
        )
    return fault


def _fails(connection: socket.socket, fault: str) -> bool:
    """Do what the fault is. Whether the answer goes on after it."""
    if fault in ("stall", "slow_headers"):
        return True
    if fault == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    elif fault in TAILS:
        tail = TAILS[fault]
        last = b"%x\r\n%b\r\n" % (len(tail), tail) if tail else b""
        connection.sendall(last + STREAM_END)
    return False


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "server_error", "code": 500}}


def _let_threads_finish(server: Server) -> None:
    """The last bytes of an answer are sent shortly before its thread writes its outcome down."""
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline:
        if all(
            entry.outcome != "unfinished" for entry in list(server.entries.values())
        ):
            return
        time.sleep(0.005)


def take_real_time_priority() -> str:
    """As server.c does: with it a thread sends on time on a busy machine. Whether it was given."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except (AttributeError, OSError):
        return "normal"
    return "real-time"


def wait_until(instant_ns: int) -> None:
    """Sleep, unless the instant is past."""
    left_ns = instant_ns - time.monotonic_ns()
    if left_ns > 0:
        time.sleep(left_ns / NS_PER_S)


def main() -> int:
    """Serve until SIGTERM or SIGINT, then write the log."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--case", default="")
    parser.add_argument("--answers", default="{}")
    arguments = parser.parse_args()

    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    signal.signal(signal.SIGINT, lambda *_: ended.set())
    sys.setswitchinterval(
        0.0005
    )  # a thread that has to send waits for less than a millisecond
    priority = take_real_time_priority()
    server = Server(Answers(**json.loads(arguments.answers)), arguments.port)
    threading.Thread(target=server.serve, daemon=True).start()
    print(server.port, flush=True)

    ended.wait()
    _let_threads_finish(server)
    entries = list(server.entries.values())
    write_log(arguments.log, entries, server.about(arguments.case, priority))
    return 0


if __name__ == "__main__":
    sys.exit(main())
