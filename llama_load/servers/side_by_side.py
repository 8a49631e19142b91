"""Calls at the same time, for which nobody waits once the caller has given up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def side_by_side(calls: Sequence[Callable[[], T]]) -> list[T]:
    """The results of the calls, in order; raises the first call's error, in order, when all have
    ended.

    In daemon threads (greenlets under Locust): an executor would hold up the end of the process,
    and of a caller that is killed, until the slowest server has answered.
    """
    results: dict[int, T] = {}
    errors: dict[int, BaseException] = {}

    def run(place: int, call: Callable[[], T]) -> None:
        try:
            results[place] = call()
        except BaseException as error:  # raised below
            errors[place] = error

    threads = [
        threading.Thread(target=run, args=each, daemon=True)
        for each in enumerate(calls)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[min(errors)]
    return [results[place] for place in range(len(calls))]
