"""Precise sleeps: a kernel timer (timerfd) that the event loop watches like a socket.

gevent's sleeps end up to 1 ms late: libev passes them to epoll, whose timeouts are rounded up to
whole milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from contextlib import suppress
from typing import Any, Final

import gevent

from llama_load.ground.units import NS_PER_MS, NS_PER_S

# The last part of a wait, longer than the error of a gevent sleep.
FINE_NS: Final = 2 * NS_PER_MS

# The most timers at once: file descriptors are needed for connections.
MOST_TIMERS: Final = 64

# linux/timerfd.h, for Python before 3.13.
_ABSOLUTE: Final = 1
_ITIMERSPEC: Final = ctypes.c_long * 4  # interval s, ns; first expiry s, ns
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


class _Timer:
    """One timer, for one greenlet at a time."""

    made = 0

    def __init__(self) -> None:
        """Raises OSError when no file descriptor is left."""
        self._fd = _LIBC.timerfd_create(
            time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC
        )
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "no timer available")
        self._watcher: Any = gevent.get_hub().loop.io(self._fd, 1)
        _Timer.made += 1

    def wait(self, until_ns: int) -> None:
        # Setting it again also clears an earlier expiry.
        _LIBC.timerfd_settime(
            self._fd, _ABSOLUTE, _ITIMERSPEC(0, 0, *divmod(until_ns, NS_PER_S)), None
        )
        gevent.get_hub().wait(self._watcher)


_idle: list[_Timer] = []


def sleep_until(until_ns: int) -> None:
    """Sleep until this instant of the monotonic clock, ns; about 0.1 ms late if the loop is idle.
    Without a kernel timer (not supported, or all in use), as precise as gevent."""
    timer = _free_timer()
    if timer is None:
        gevent.sleep(max(0, until_ns - time.monotonic_ns()) / NS_PER_S)
        return
    try:
        timer.wait(until_ns)
    finally:
        _idle.append(timer)


def _free_timer() -> _Timer | None:
    if not sys.platform.startswith("linux"):
        return None
    if _idle:
        return _idle.pop()
    with suppress(OSError):
        return _Timer() if _Timer.made < MOST_TIMERS else None
    return None
