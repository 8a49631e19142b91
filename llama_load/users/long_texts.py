"""Work on texts that may be long, such as their hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import cast

import gevent

# Hashing this much takes 0.1 ms.
LONG_CHARS = 32_768


def text_digest(text: str) -> str:
    """The SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def in_thread_if_long(function: Callable[..., str], text: str, *rest: str) -> str:
    """`function(text, …)`; for a long text in a thread, so that the event loop is not blocked."""
    arguments = (text, *rest)
    return function(*arguments) if len(text) <= LONG_CHARS else cast(str, gevent.get_hub().threadpool.apply(function, arguments))
