"""pyarrow, loaded while nothing is measured yet, and without pandas."""

from __future__ import annotations

import sys
from functools import cache
from importlib.abc import MetaPathFinder
from typing import Any


class _NoPandas(MetaPathFinder):
    """An import hook that finds no pandas."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not needed here", name=fullname)


@cache
def load_arrow() -> None:
    """Import what encoding, moving and storing records needs, so that none of it is imported while requests are in flight.

    The first `pa.array` of a process looks for pandas, and imports it wherever it is installed: 0.3 s of CPU (several s on a
    busy machine) for a check whether a list is a pandas.Series. It looks once; what really needs pandas (`Table.to_pandas`)
    looks again. So pandas is hidden for this one call, unless the locustfile has imported it already.
    """
    import pyarrow as pa
    import pyarrow.compute
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
