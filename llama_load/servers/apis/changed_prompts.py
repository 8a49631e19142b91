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
    """The message in which another prompt is no longer this one: "message 0 (system)", "message 2
    (user), part 1 (image)".

    `earlier`: messages as JSON, without the last bracket; `common`: the characters that both begin
    with. None: it is no such text.
    """
    messages: Any = None
    with suppress(ValueError, RecursionError):
        messages = json.loads(f"{earlier}]")
    if not isinstance(messages, list):
        return None
    found = _item_at(messages, common)
    if found is None:
        return None
    number, begin = found
    message = messages[number]
    if not isinstance(message, dict):
        return f"message {number} (None)"
    text = f"message {number} ({message.get('role')})"
    return text + _changed_part(message, common - begin)


def _item_at(items: list[Any], place: int) -> tuple[int, int] | None:
    """The item of a list at a character of its JSON, and the character at which it begins."""
    end = 0
    for number, item in enumerate(items):
        begin = end + 1  # after a bracket or a comma
        end = begin + _length(item)
        if place < end:
            return number, begin
    return None


def _changed_part(message: dict[str, Any], common: int) -> str:
    """The part of a message that has several in which it changed, ", part 1 (image)"."""
    parts = message.get("content")
    if not isinstance(parts, list):
        return ""
    names = list(message)
    before = names[: names.index("content")]
    head = {name: message[name] for name in before}
    # The comma is in the place of the head's last bracket.
    place = common - _length(head) - len('"content":')
    found = _item_at(parts, place)
    if place < 0 or found is None:
        return ""
    part = parts[found[0]]
    kind = part.get("type") if isinstance(part, dict) else None
    return f", part {found[0]} ({'image' if kind == 'image_url' else kind})"


def _length(value: Any) -> int:
    """In characters of its JSON."""
    return len(msgspec.json.encode(value).decode())


def excerpt(text: str, common: int) -> str:
    """A text around the place from which it is another one."""
    begin = max(0, common - BEFORE_CHARS)
    return text[begin : begin + SHOWN_CHARS]
