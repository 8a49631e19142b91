"""Work on texts that may be long, such as their hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TypeVar, cast

import gevent

T = TypeVar("T")

# Hashing this much takes 0.1 ms.
LONG_CHARS = 32_768


def text_digest(text: str) -> str:
    """The SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def in_thread_if_long(function: Callable[..., T], text: str, *rest: str) -> T:
    """`function(text, …)`; for a long text in a thread, so that the event loop is not blocked."""
    arguments = (text, *rest)
    if len(text) <= LONG_CHARS:
        return function(*arguments)

    threads = gevent.get_hub().threadpool

    return cast("T", threads.apply(function, arguments))
