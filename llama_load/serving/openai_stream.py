"""The bytes of an OpenAI stream, as the simulated server sends them."""

from __future__ import annotations

import msgspec

MODEL = "simulated"


def frame(data: bytes) -> bytes:
    """A chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def unframed(data: bytes) -> bytes:
    """The contents of whole chunks, for an HTTP/1.0 client, which has no chunked encoding."""
    pieces = []
    while data:
        length, _, data = data.partition(b"\r\n")
        size = int(length, 16)
        pieces.append(data[:size])
        data = data[size + 2 :]
    return b"".join(pieces)


def event(value: object) -> bytes:
    """A chunk that holds one event with this JSON."""
    return frame(b"data: " + msgspec.json.encode(value) + b"\n\n")


def _chunk(chat: bool, delta: dict[str, object], finish: str | None = None) -> dict[str, object]:
    choice: dict[str, object] = {"index": 0, "finish_reason": finish}
    if chat:
        choice["delta"] = delta
    else:
        choice["text"] = delta.get("content", "")
    kind = "chat.completion.chunk" if chat else "text_completion"
    return {"id": "sim", "object": kind, "created": 0, "model": MODEL, "choices": [choice]}


STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
OLD_STREAM_HEAD = b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
ROLE = {True: event(_chunk(True, {"role": "assistant", "content": None})), False: b""}
TOKEN = {chat: event(_chunk(chat, {"content": " tok"})) for chat in (True, False)}


def first_token(*, chat: bool, number: int) -> bytes:
    """The first token of the answer to request `number`: no two answers are equal."""
    return event(_chunk(chat, {"content": f" {number}"}))


def tail(
    *,
    chat: bool,
    tokens: int,
    prompt_tokens: int,
    include_usage: bool,
    fault: str,
    finish: str = "length",
    cached_tokens: int = 0,
) -> bytes:
    """Everything after the last token, according to the fault."""
    parts = []
    if fault != "no-finish":
        parts.append(event(_chunk(chat, {}, finish)))
    if include_usage:
        usage: dict[str, object] = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": tokens,
            "total_tokens": prompt_tokens + tokens,
        }
        if cached_tokens >= 0:
            usage["prompt_tokens_details"] = {"cached_tokens": cached_tokens}
        parts.append(event({"id": "sim", "object": "usage", "choices": [], "usage": usage}))
    if fault != "no-done":
        parts.append(frame(b"data: [DONE]\n\n"))
    parts.append(b"0\r\n\r\n")
    return b"".join(parts)
