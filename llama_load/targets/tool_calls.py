"""The tool calls of an answer, put together from the pieces in which a stream sends them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from llama_load.foreign_text import printable
from llama_load.workloads.prompt import ToolCall

# An answer with more calls than this is not one that a client could carry out.
MOST_CALLS = 128
MOST_NAME_CHARS = 200


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Piece(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


_PIECES = msgspec.json.Decoder(list[_Piece])


def calls_of(pieces: Sequence[bytes]) -> tuple[ToolCall, ...]:
    """The calls: pieces of the same `index` are one call, whose arguments follow each other. A call without an id gets one."""
    calls: dict[int, ToolCall] = {}
    for piece in pieces:
        try:
            parts = _PIECES.decode(piece)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        for place, part in enumerate(parts):
            number = place if part.index is None else part.index
            if number not in calls and len(calls) >= MOST_CALLS:
                continue
            call, more = calls.get(number, ToolCall("", "", "")), part.function or _Function()
            calls[number] = ToolCall(part.id or call.id, call.name + (more.name or ""), call.arguments + (more.arguments or ""))
    return tuple(
        ToolCall(
            printable(call.id, MOST_NAME_CHARS) or f"call_{number}", printable(call.name, MOST_NAME_CHARS), call.arguments or "{}"
        )
        for number, call in sorted(calls.items())
        if call.name
    )
