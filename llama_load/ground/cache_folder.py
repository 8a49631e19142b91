"""Where llama-load keeps what it can make again: models of the demo, calibrations, builds."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/llama-load, else ~/.cache/llama-load.

    Source: XDG Base Directory Specification.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    if base:
        return Path(base) / "llama-load"
    return Path.home() / ".cache" / "llama-load"
