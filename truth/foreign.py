"""Files and texts that others have made: read within limits, and shown as one line of a text."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

MOST_BYTES = 256 << 20
# Control and bidirectional characters: a terminal obeys them, and a page is misread.
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def text_of(path: Path) -> str:
    """A text in UTF-8. OSError, ValueError: it cannot be read, is no regular file, or too large."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("it is no regular file")
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES >> 20} MiB")
    return data.decode("utf-8")


def value_of(text: str) -> Any:
    """A value in JSON. ValueError: it is none, or its levels are too many."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it has too many levels") from None


def printable(text: str) -> str:
    """The text without control and bidirectional characters: each becomes U+FFFD."""
    return _UNPRINTABLE.sub("\ufffd", text)
