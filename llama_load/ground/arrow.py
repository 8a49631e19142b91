"""Imports pyarrow before anything is measured, and without pandas."""

from __future__ import annotations

import os
import sys
from functools import cache
from importlib.abc import MetaPathFinder
from typing import Any


class _NoPandas(MetaPathFinder):
    """An import hook that makes `import pandas` fail."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not needed here", name=fullname)


@cache
def load_arrow() -> None:
    """Import everything that encoding records needs, so that no import happens while requests are
    in flight.

    The first `pa.array` of a process imports pandas if it is installed: 0.3 s of CPU (seconds on a
    busy machine), to check whether a list is a pandas.Series. So pandas is hidden during that call,
    unless it is loaded already. `Table.to_pandas` imports it again when needed.
    """
    # Arrow's own allocator keeps what it has once used: reading a million records left 450 MB of
    # it.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    import pyarrow as pa
    import pyarrow.ipc

    hook = _NoPandas()
    hidden = "pandas" not in sys.modules
    if hidden:
        sys.meta_path.insert(0, hook)
    try:
        pa.array([1])
    finally:
        if hidden:
            sys.meta_path.remove(hook)


def release_unused() -> None:
    """Return to the system what reading has used and freed."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
