"""The end of the log of a server that was started for the run: the folder keeps it as server/server.log."""

from __future__ import annotations

import os
import stat
from pathlib import Path

LOG = Path("server") / "server.log"
# The last words of a server that died.
MOST_BYTES = 64 * 1024


def server_log_end(folder: Path) -> str:
    """The last 64 KiB of the log; empty where there is none, or it is no ordinary file."""
    try:
        file = os.open(folder / LOG, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    with os.fdopen(file, "rb") as log:
        status = os.fstat(log.fileno())
        if not stat.S_ISREG(status.st_mode):
            return ""
        log.seek(max(0, status.st_size - MOST_BYTES))
        return log.read(MOST_BYTES).decode("utf-8", "replace")
