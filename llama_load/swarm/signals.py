"""Ctrl-C and SIGTERM, at any instant of a Locust process with a locustfile of ours.

    first    the run ends well: nothing new begins, with --at-end wait what is in flight is waited for, the report is written
    second   what is in flight is cut, the report is written
    third    the process leaves at once; `llama-load report` writes the report later

Before a run could begin, the first leaves. The handler raises nothing: an exception would appear wherever Python happens to be, in
the middle of a batch of read events or of an import, and some places print it and go on.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

import gevent

from llama_load.terminal import complain

EXIT_CODE = 3
LEAVES_AT = 3
PR_SET_PDEATHSIG = 1  # linux/prctl.h
NOTHING_SENT = "interrupted before anything was sent"
_SHOW_CURSOR = b"\x1b[?25h"


class Signals:
    """The signals of this process so far. `listen` names who hears of them, in a greenlet of its own."""

    def __init__(self) -> None:
        self.count = 0
        self._listener: Callable[[int], None] | None = None
        self._is_child = False
        self._terminal: list[Any] | None = None
        self._is_thrown = False

    def take(self) -> None:
        """Handle both from now on. One that is ignored, or that somebody else handles, stays so."""
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._received)
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._received)
            sys.modules["locust.main"].gevent = _GeventWithoutSigterm()  # type: ignore[attr-defined]
        os.register_at_fork(after_in_child=self._forked)
        atexit.register(_ignore)  # the first to be registered is the last to be called
        with suppress(Exception):  # no terminal, or a system without
            import termios

            self._terminal = termios.tcgetattr(sys.stdin.fileno())

    def listen(self, listener: Callable[[int], None]) -> None:
        """From now on `listener` is called with the number of the signal, between two events of the loop."""
        self._listener = listener

    def throw(self, error: BaseException) -> None:
        """Raise this in the main greenlet, which must be waiting; once in the life of this process."""
        if not self._is_thrown:
            self._is_thrown = True
            gevent.get_hub().handle_system_error(type(error), error)

    def _forked(self) -> None:
        """In a worker of --processes: its master's end is a SIGTERM to it, also where nothing else would tell it."""
        self._is_child, self._listener = True, None
        if sys.platform == "linux":
            import ctypes

            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)

    def _received(self, *_: object) -> None:
        self.count += 1
        if self._listener is None:
            self._leave("" if self._is_child else NOTHING_SENT)
        elif self.count >= LEAVES_AT:
            self._leave("" if self._is_child else "left without a report; 'llama-load report RUN' writes it")
        else:
            gevent.get_hub().loop.run_callback_threadsafe(gevent.spawn, self._listener, self.count)

    def _leave(self, sentence: str) -> NoReturn:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # we may have interrupted a write to it
                stream.flush()
        with suppress(Exception):
            if os.isatty(2):
                os.write(2, _SHOW_CURSOR)
            if self._terminal is not None:
                import termios

                termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, self._terminal)
        if sentence:
            complain(sentence)
        with suppress(Exception):
            import psutil

            for child in psutil.Process().children():
                child.terminate()
        os._exit(EXIT_CODE)


class _GeventWithoutSigterm:
    """What Locust's main module takes for gevent: its handler of SIGTERM would shut down once a signal, each time from the
    beginning, and end in the traceback of the second."""

    def __getattr__(self, name: str) -> Any:
        return getattr(gevent, name)

    def signal_handler(self, number: int, *arguments: Any, **settings: Any) -> Any:
        """See `gevent.signal_handler`."""
        return None if number == signal.SIGTERM else gevent.signal_handler(number, *arguments, **settings)


def _ignore() -> None:
    """Python puts the defaults back while it ends: a signal then would kill the process, whose exit code is settled."""
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(ValueError, OSError):
            signal.signal(number, signal.SIG_IGN)


SIGNALS = Signals()


def is_locust_process() -> bool:
    """Whether Locust's command is importing us, so that the process is ours to end; else it is a test, or another program."""
    main = getattr(sys.modules.get("locust.main"), "main", None)
    frame = sys._getframe()
    while main is not None and frame is not None:
        if frame.f_code is main.__code__:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
