"""Blocking calls (disk) in a thread, so that the event loop keeps running."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import gevent

T = TypeVar("T")


def in_thread(function: Callable[[], T]) -> T:
    """Call it in a thread; only the calling greenlet blocks. Its exceptions are raised here, without gevent's printed traceback."""

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
