"""Waiting for a condition, in place of a time that a busy machine does not keep."""

from __future__ import annotations

import time
from collections.abc import Callable

import gevent

# Longer than any machine takes: it ends a test that would wait for ever.
WITHIN_S = 60.0


def until(condition: Callable[[], object], within_s: float = WITHIN_S) -> None:
    """Wait until it is so; AssertionError: it is not in time. Greenlets and threads go on."""
    gives_up_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < gives_up_s, "it did not happen"
        gevent.sleep(0.005)  # between two looks
