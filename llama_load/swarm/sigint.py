"""Ctrl-C, at a moment when nothing is half done."""

from __future__ import annotations

import signal

import gevent


def interrupt_between_events() -> None:
    """From now on Ctrl-C raises its KeyboardInterrupt in the main greenlet, between two callbacks of the event loop.

    Python would raise it wherever it happens to be: in the middle of a batch of read events, say, whose streams would then never
    be read to their end. Where SIGINT is ignored, or somebody else handles it, it stays so.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _soon)


def _soon(*_: object) -> None:
    hub = gevent.get_hub()
    hub.loop.run_callback_threadsafe(hub.handle_system_error, KeyboardInterrupt, None)
