"""Commands that start modules in this Python: the only place that makes them."""

from __future__ import annotations

import sys

# Without it `python -m` imports from the working directory first, which may hold files of others:
# a json.py there would run in place of Python's.
NOT_FROM_HERE = "-P"


def module_command(module: str, *words: str) -> list[str]:
    """The command of this module with these words, which imports nothing from the working
    directory."""
    return [sys.executable, NOT_FROM_HERE, "-m", module, *words]
