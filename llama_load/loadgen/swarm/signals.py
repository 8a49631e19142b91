"""Ctrl-C and SIGTERM in a Locust process with a llama-load locustfile.

    first    no more requests begin; with --at-end wait those in flight are completed; the report is
             written
    second   requests in flight are cancelled; the report is written
    third    the process exits at once; `llama-load report` writes the report later

Before a run has been prepared, the first signal exits. The handler raises nothing: the exception
would appear at an arbitrary place, such as in an import, and some of these print it and continue.
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

from llama_load.ground.exit_codes import INCOMPLETE
from llama_load.ground.processes import end_with_parent
from llama_load.outside.terminal import complain

LEAVES_AT = 3
NOTHING_SENT = "interrupted before anything was sent"
_SHOW_CURSOR = b"\x1b[?25h"


class Signals:
    """The signal handler of this process. The listener is called in a new greenlet."""

    def __init__(self) -> None:
        self.count = 0
        self._listener: Callable[[int], None] | None = None
        self._is_child = False
        self._terminal: list[Any] | None = None
        self._is_thrown = False

    def take(self) -> None:
        """Handle both signals from now on, except one that is ignored or already has another
        handler."""
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._received)
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._received)
            sys.modules["locust.main"].gevent = _GeventWithoutSigterm()  # type: ignore[attr-defined]
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)
        atexit.register(_ignore)  # the first to be registered is the last to be called
        with suppress(Exception):  # no terminal, or a system without
            import termios

            self._terminal = termios.tcgetattr(sys.stdin.fileno())

    def listen(self, listener: Callable[[int], None]) -> None:
        """Call `listener` with the number of signals so far, from the event loop."""
        self._listener = listener

    def throw(self, error: BaseException) -> None:
        """Raise this in the main greenlet, which must be waiting. Only the first call does."""
        if not self._is_thrown:
            self._is_thrown = True
            gevent.get_hub().handle_system_error(type(error), error)

    def _forked(self) -> None:
        """In a worker of --processes: request a SIGTERM when the master's process ends."""
        self._is_child = True
        self._listener = None
        end_with_parent(signal.SIGTERM)

    def _received(self, *_: object) -> None:
        self.count += 1
        if self._listener is None:
            self._leave("" if self._is_child else NOTHING_SENT)
        elif self.count >= LEAVES_AT:
            self._leave(
                ""
                if self._is_child
                else "left without a report; 'llama-load report RUN' writes it"
            )
        else:
            gevent.get_hub().loop.run_callback_threadsafe(
                gevent.spawn, self._listener, self.count
            )

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
        os._exit(INCOMPLETE)


class _GeventWithoutSigterm:
    """gevent without Locust's SIGTERM handler, which restarts the shutdown at every signal and ends
    in a traceback."""

    def __getattr__(self, name: str) -> Any:
        return getattr(gevent, name)

    def signal_handler(self, number: int, *arguments: Any, **settings: Any) -> Any:
        """See `gevent.signal_handler`."""
        return (
            None
            if number == signal.SIGTERM
            else gevent.signal_handler(number, *arguments, **settings)
        )


def _ignore() -> None:
    """Ignore signals while Python exits: it restores the default handlers, and a signal would then
    change the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(ValueError, OSError):
            signal.signal(number, signal.SIG_IGN)


SIGNALS = Signals()


def is_locust_process() -> bool:
    """Whether Locust's command is importing us. Else (a test, another program) the signals are not
    ours to handle."""
    main = getattr(sys.modules.get("locust.main"), "main", None)
    frame = sys._getframe()
    while main is not None and frame is not None:
        if frame.f_code is main.__code__:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
