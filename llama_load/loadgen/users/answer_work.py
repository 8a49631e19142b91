"""Checks of answers, in bounded time and without blocking the event loop."""

from __future__ import annotations

from collections.abc import Callable

import gevent

from llama_load.outside.budget import Budget, TooMuchWork
from llama_load.servers.json_schema import MOST_STEPS

# About a millisecond.
STEPS_IN_LOOP = 100
TOO_LONG = "the answer took too long to check"

Check = Callable[[Budget], str | None]


def fault_of(check: Check) -> str | None:
    """What `check(budget)` returns, or that it took too long. It is called in the event loop first,
    and again in a thread where that takes over a millisecond; only this greenlet waits."""
    try:
        return check(Budget(STEPS_IN_LOOP))
    except TooMuchWork:
        fault: str | None = gevent.get_hub().threadpool.apply(_in_full, (check,))
        return fault


def _in_full(check: Check) -> str | None:
    try:
        return check(Budget(MOST_STEPS))
    except TooMuchWork:
        return TOO_LONG
