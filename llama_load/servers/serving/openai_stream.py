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


def chunk(chat: bool, delta: dict[str, object], finish: str | None = None) -> bytes:
    """An event with new parts of the only choice, of a chat or of a text completion."""
    choice: dict[str, object] = {"index": 0, "finish_reason": finish}
    if chat:
        choice["delta"] = delta
    else:
        choice["text"] = delta.get("content", "")
    kind = "chat.completion.chunk" if chat else "text_completion"
    return event(
        {"id": "sim", "object": kind, "created": 0, "model": MODEL, "choices": [choice]}
    )


STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\n"
    b"Content-Type: text/event-stream\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
OLD_STREAM_HEAD = b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
ROLE = {True: chunk(True, {"role": "assistant", "content": None}), False: b""}
TOKEN = {chat: chunk(chat, {"content": " tok"}) for chat in (True, False)}
