"""A file that the event loop renews, for a liveness probe: a process whose loop hangs is restarted
by its orchestrator."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import gevent

VARIABLE = "LLAMA_LOAD_ALIVE_FILE"
RENEW_EVERY_S = 5.0


def keep_alive_file() -> gevent.Greenlet | None:
    """Renew the file that the environment names; None if it names none. A disk that refuses is no
    reason to end."""
    name = os.environ.get(VARIABLE)
    return gevent.spawn(_renew, Path(name)) if name else None


def _renew(path: Path) -> None:
    while True:
        with suppress(OSError):
            path.touch()
        gevent.sleep(RENEW_EVERY_S)
