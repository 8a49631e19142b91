"""Two prompts of a conversation beside each other: where they are no longer the same."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import msgspec

# Of texts that differ.
SHOWN_CHARS = 60
BEFORE_CHARS = 20
# Long texts are compared in pieces of so many characters.
PIECE_CHARS = 4096


def common_length(one: str, other: str) -> int:
    """The number of characters that both begin with. "abc", "abd": 2."""
    if other.startswith(one):
        return len(one)
    shorter = min(len(one), len(other))
    least = 0
    while least < shorter:
        end = least + PIECE_CHARS
        if one[least:end] != other[least:end]:
            break
        least = end

    least = min(least, shorter)
    most = min(least + PIECE_CHARS, shorter)
    begin = least
    while least < most:
        middle = (least + most + 1) // 2
        if one[begin:middle] == other[begin:middle]:
            least = middle
        else:
            most = middle - 1
    return least


def changed_message(earlier: str, common: int) -> str | None:
    """The message in which another prompt is no longer this one: "message 0 (system)".

    `earlier`: messages as JSON, without the last bracket; `common`: the characters that both begin
    with. None: it is no such text.
    """
    messages: Any = None
    with suppress(ValueError, RecursionError):
        messages = json.loads(f"{earlier}]")
    if not isinstance(messages, list):
        return None
    end = 0
    for number, message in enumerate(messages):
        # A bracket or a comma stands before each.
        end += 1 + len(msgspec.json.encode(message).decode())
        if common < end:
            role = message.get("role") if isinstance(message, dict) else None
            return f"message {number} ({role})"
    return None


def excerpt(text: str, common: int) -> str:
    """A text around the place from which it is another one."""
    begin = max(0, common - BEFORE_CHARS)
    return text[begin : begin + SHOWN_CHARS]
