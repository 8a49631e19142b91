"""What the relay hands to the recording process: an exchange as it passed, and its own delays.

A message is its length in four bytes and msgpack. Texts in it stay in memory.
"""

from __future__ import annotations

import msgspec

LENGTH_BYTES = 4


class PassedExchange(msgspec.Struct, tag=True):
    """A request and its answer.

    Instants are monotonic ns. `pieces` are the answer's body as it came, without the frames of
    chunks: the instant of each piece, and its bytes. `end`: "complete", "client" or "server" for
    the side that ended it before, "unread" if its answer was no HTTP. `not_kept`: why the bodies
    are missing. `secrets`: values of its header fields that are keys, to be masked.
    """

    number: int
    method: str
    path: str
    started_ns: int
    started_wall_ns: int
    ended_ns: int
    request: bytes = b""
    request_encoding: str = ""
    status: int = 0
    content_type: str = ""
    content_encoding: str = ""
    pieces: list[tuple[int, bytes]] = msgspec.field(default_factory=list)
    end: str = "complete"
    not_kept: str = ""
    delay_ms: float = 0.0
    secrets: list[str] = msgspec.field(default_factory=list)


class RelayFigures(msgspec.Struct, tag=True):
    """The relay's own figures, at its end. Delays in ms, None without a piece.

    `refused`: requests that the relay answered itself. `not_recorded`: exchanges that the recording
    process was too slow for. `lost_cookies`: cookies that the server had not set.
    """

    pieces: int
    median_delay_ms: float | None
    p99_delay_ms: float | None
    most_delay_ms: float | None
    refused: int
    not_recorded: int
    lost_cookies: int = 0


Message = PassedExchange | RelayFigures

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Message).decode


def encoded(message: Message) -> bytes:
    """The bytes of a message, with their length in front."""
    body = _encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def decoded(body: bytes) -> Message:
    """The message of these bytes, without their length. Raises msgspec.DecodeError."""
    message: Message = _decode(body)
    return message
