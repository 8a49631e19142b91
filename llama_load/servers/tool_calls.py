"""The tool calls of an answer, put together from the pieces in which a stream sends them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from llama_load.outside.foreign_text import printable
from llama_load.servers.prompt import ToolCall

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
    """The calls. A call without an id gets one.

    Pieces of the same `index` are one call, whose arguments follow each other.
    """
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
            before = calls.get(number, ToolCall("", "", ""))
            more = part.function or _Function()
            calls[number] = ToolCall(
                part.id or before.id,
                before.name + (more.name or ""),
                before.arguments + (more.arguments or ""),
            )

    whole = []
    for number, call in sorted(calls.items()):
        if call.name:
            call_id = printable(call.id, MOST_NAME_CHARS) or f"call_{number}"
            name = printable(call.name, MOST_NAME_CHARS)
            whole.append(ToolCall(call_id, name, call.arguments or "{}"))
    return tuple(whole)
