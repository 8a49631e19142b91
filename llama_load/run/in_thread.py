"""What may block (disks) in a thread, while the event loop goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import gevent

T = TypeVar("T")


def in_thread(function: Callable[[], T]) -> T:
    """Call it in a thread, blocking the calling greenlet alone. What it raises is raised here. (gevent's thread pool would print a
    traceback, too.)"""

    def attempt() -> tuple[list[T], Exception | None]:
        try:
            return [function()], None
        except Exception as error:
            return [], error

    results: list[T]
    results, error = gevent.get_hub().threadpool.apply(attempt)
    if error is not None:
        raise error
    return results[0]
