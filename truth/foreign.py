"""Files and texts that others have made: read within limits, and shown as one line of a text."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MOST_BYTES = 256 << 20
# Requests of a log or a result, and other lines.
MOST_LINES = 5_000_000
MOST_MEMORY_BYTES = 2 << 30
# What CPython takes for a list, an object with its first keys, and a value with its place.
LIST_BYTES = 88
OBJECT_BYTES = 272
VALUE_BYTES = 40
# A string that never ends is one match, up to the end: looking for its end from each of its quotes
# would take quadratic time.
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
# Control and bidirectional characters: a terminal obeys them, and a page is misread.
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
# Of these, those that JSON may have as they are.
_OBEYED_IN_JSON = re.compile(
    "[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
# Signs of Markdown, the backslash among them, which would cancel ours.
_MARKUP = re.compile(r"[\\`*\[\]<|~]")


def text_of(path: Path, most_bytes: int | None = None) -> str:
    """A text in UTF-8. OSError, ValueError: it cannot be read, is no regular file, or too large."""
    most_bytes = MOST_BYTES if most_bytes is None else most_bytes
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise ValueError("it is no regular file")
        if about.st_size > most_bytes:
            raise ValueError(f"it has more than {most_bytes >> 20} MiB")
        return file.read(about.st_size).decode("utf-8")


def lines_of(text: str) -> Iterator[str]:
    """Its lines, one after the other. ValueError: there are too many."""
    start = 0
    for _ in range(MOST_LINES):
        if start >= len(text):
            return
        end = text.find("\n", start)
        if end < 0:
            end = len(text)
        yield text[start:end].removesuffix("\r")
        start = end + 1
    if start < len(text):
        raise ValueError(f"it has more than {MOST_LINES:,} lines")


def refuse_large(text: str) -> None:
    """ValueError: the values of this JSON, of all its lines, would take too much memory."""
    if len(text) * VALUE_BYTES <= MOST_MEMORY_BYTES:
        return
    structure = _STRING.sub("", text)  # brackets and commas in texts are none
    memory = LIST_BYTES * structure.count("[") + OBJECT_BYTES * structure.count("{")
    memory += VALUE_BYTES * (structure.count(",") + structure.count(":"))
    memory += VALUE_BYTES * structure.count("\n") + len(text)
    if memory > MOST_MEMORY_BYTES:
        raise ValueError(
            f"its values would take {memory / 2**30:.1f} GiB of memory, over the limit of "
            f"{MOST_MEMORY_BYTES >> 30} GiB"
        )


def value_of(text: str) -> Any:
    """A value in JSON. ValueError: it is none, or too large, or its levels are too many."""
    refuse_large(text)
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it has too many levels") from None


def printable(text: str) -> str:
    """The text without control and bidirectional characters: each becomes U+FFFD."""
    return _UNPRINTABLE.sub("\ufffd", text)


def escaped_json(text: str) -> str:
    """A JSON text with escapes for the characters that a terminal obeys: the same value."""
    return _OBEYED_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def markdown(text: str) -> str:
    """As a cell of a table in Markdown, without markup and HTML."""
    return _MARKUP.sub(_as_text, printable(text))


def _as_text(sign: re.Match[str]) -> str:
    return "&lt;" if sign[0] == "<" else f"\\{sign[0]}"
