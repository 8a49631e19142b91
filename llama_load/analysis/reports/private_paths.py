"""Texts without the paths of this machine, for a report that is sent to others.

Paths hold user names and folders.
"""

from __future__ import annotations

import re

# An absolute path with at least two parts that is not a part of an address or a ratio: its folders,
# and its last part. Paths of APIs, such as /v1/chat/completions, are none.
_PATH = re.compile(
    r"(?<![\w:/.~…\\-])(?:~(?:[\w.-]*)|(?!/v\d))"
    r"(?:/[^\s/'\"`,;|()\[\]{}<>]+)*/(?P<last>[^\s/'\"`,;|()\[\]{}<>]+)"
)


def without_paths(text: str) -> str:
    """The text with `…/model.gguf` for `/home/me/models/model.gguf`."""
    return _PATH.sub(_short, text)


def _short(match: re.Match[str]) -> str:
    path = match[0]
    if path.startswith("/") and path.count("/") < 2:
        return path
    return f"…/{match['last']}"
