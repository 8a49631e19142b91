"""The connections of the simulated server and the answers that it streams on them."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import httptools

from llama_load.ground.units import s_to_ns
from llama_load.servers.counting import EstimatedCounter
from llama_load.servers.serving.openai_stream import ROLE, TOKEN, chunk, event, frame
from llama_load.servers.serving.simulated_schedule import Schedule

# Of the chat template that the server pretends to have.
TEMPLATE_TOKENS = 16


@dataclass(slots=True, eq=False)
class AnswerStream:
    """One request being answered."""

    connection: ClientConnection
    schedule: Schedule
    number: int
    request_id: str
    chat: bool
    include_usage: bool
    total: int
    finish: str
    fault: str
    body_bytes: int
    prompt_tokens: int
    received_ns: int
    started_ns: int = 0
    offsets_ns: list[int] = field(default_factory=list)
    sent_ns: list[int] = field(default_factory=list)

    def schedule_tokens(self, random: Random) -> None:
        """Set `offsets_ns`: the instants of its tokens, from its start."""
        schedule = self.schedule
        first_ns = s_to_ns(schedule.first_token_s)
        interval_ns = s_to_ns(schedule.interval_s)
        jitter_ns = s_to_ns(schedule.jitter_s)

        previous_ns = 0
        for index in range(max(self.total, 1)):
            offset_ns = first_ns + index * interval_ns
            if jitter_ns:
                offset_ns += random.randint(-jitter_ns, jitter_ns)
            previous_ns = max(
                previous_ns, offset_ns
            )  # no token before the one before it
            self.offsets_ns.append(previous_ns)

    def piece(self, index: int, count: int) -> bytes:
        """The chunks of `count` tokens from token `index` on, and what follows the last one."""
        frames = []
        tokens = count
        if index == 0:
            frames.append(ROLE[self.chat])
            if count:
                # The first token is the request's number: no two answers are equal.
                frames.append(chunk(self.chat, {"content": f" {self.number}"}))
                tokens -= 1

        frames += [TOKEN[self.chat]] * tokens
        if index + count >= self.total:
            frames.append(self._end())
        return b"".join(frames)

    def _end(self) -> bytes:
        """Everything after the last token, according to the fault."""
        frames = []
        if self.fault != "no-finish":
            frames.append(chunk(self.chat, {}, self.finish))
        if self.include_usage:
            usage = self._usage()
            frames.append(
                event({"id": "sim", "object": "usage", "choices": [], "usage": usage})
            )
        if self.fault != "no-done":
            frames.append(frame(b"data: [DONE]\n\n"))
        frames.append(b"0\r\n\r\n")
        return b"".join(frames)

    def _usage(self) -> dict[str, object]:
        usage: dict[str, object] = {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.total,
            "total_tokens": self.prompt_tokens + self.total,
        }
        if self.schedule.cached_tokens >= 0:
            usage["prompt_tokens_details"] = {
                "cached_tokens": self.schedule.cached_tokens
            }
        return usage


class ClientConnection:
    """A client's connection and the request parsed on it (httptools calls the on_… methods)."""

    def __init__(
        self, sock: socket.socket, on_request: Callable[[ClientConnection], None]
    ) -> None:
        self.sock = sock
        self.on_request = on_request
        self.parser = httptools.HttpRequestParser(self)
        self.pending = bytearray()
        self.closing = False  # as soon as `pending` is sent
        self.read_ns = 0
        self.stream: AnswerStream | None = None
        self.on_message_begin()

    def on_message_begin(self) -> None:
        """A request begins."""
        self.path = bytearray()
        self.headers: dict[bytes, bytes] = {}
        self.body = bytearray()  # appended to in constant time

    def on_url(self, url: bytes) -> None:
        """A part of its path."""
        self.path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One of its headers."""
        self.headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        """A part of its body."""
        self.body += body

    def on_message_complete(self) -> None:
        """It is complete."""
        self.close = not self.parser.should_keep_alive()
        self.old = self.parser.get_http_version() == "1.0"
        self.on_request(self)


def prompt_tokens(body: dict[str, Any]) -> int:
    """An estimate of the prompt's tokens, and the 16 of a chat template."""
    messages = body.get("messages") or [{"content": body.get("prompt")}]
    texts = [str(message.get("content") or "") for message in messages]
    return sum(EstimatedCounter().count(texts)) + TEMPLATE_TOKENS
