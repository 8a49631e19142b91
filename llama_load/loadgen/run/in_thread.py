"""Blocking calls (disk) in a thread, so that the event loop keeps running."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import gevent
from gevent.threadpool import ThreadPool

# Of the page: it waits for the disks and computations of others, and must not keep records waiting.
PAGE_THREADS = 4

T = TypeVar("T")


def in_thread(function: Callable[[], T]) -> T:
    """Call it in a thread; only the calling greenlet blocks. Its exceptions are raised here,
    without gevent's printed traceback."""
    return _in_pool(gevent.get_hub().threadpool, function)


def in_page_thread(function: Callable[[], T]) -> T:
    """The same in one of a few threads of the web page, so that no downloads wait in front of what
    writes records."""
    return _in_pool(_page_threads(), function)


@cache
def _page_threads() -> Any:
    return ThreadPool(PAGE_THREADS)


def _in_pool(pool: Any, function: Callable[[], T]) -> T:
    def attempt() -> tuple[list[T], Exception | None]:
        try:
            return [function()], None
        except Exception as error:
            return [], error

    results: list[T]
    results, error = pool.apply(attempt)
    if error is not None:
        raise error
    return results[0]
