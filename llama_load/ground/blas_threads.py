"""numpy without threads of its own.

OpenBLAS, which comes with numpy, starts a thread for each core when it is loaded, and each of them
spins for 0.1 s before it sleeps: on 64 cores that are 6 s of CPU time, at the start of a load test
and perhaps beside its server. Nothing here multiplies matrices, so one thread is enough.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType

VARIABLE = "OPENBLAS_NUM_THREADS"
# Whoever sets one of them has decided.
DECIDED_BY = (VARIABLE, "GOTO_NUM_THREADS", "OMP_NUM_THREADS")


def load_numpy_without_threads() -> None:
    """From now on: whoever imports numpy in this process gets it with one thread, unless the
    environment says how many. For processes that run nothing but load tests."""
    if "numpy" not in sys.modules:
        sys.meta_path.insert(0, _NumpyFinder())


class _NumpyFinder:
    """Finds numpy where Python would. It stays: other threads may be going through the finders."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if fullname != "numpy":
            return None

        spec = PathFinder.find_spec(fullname)
        if spec is None or not isinstance(spec.loader, SourceFileLoader):
            return None
        spec.loader = _NumpyLoader(fullname, spec.loader.path)
        return spec


class _NumpyLoader(SourceFileLoader):
    """Loads numpy with one thread."""

    def exec_module(self, module: ModuleType) -> None:
        with _one_thread():
            super().exec_module(module)


@contextmanager
def _one_thread() -> Iterator[None]:
    if any(name in os.environ for name in DECIDED_BY):
        yield
        return
    # OpenBLAS reads it once. Servers that are started from here inherit nothing of it.
    os.environ[VARIABLE] = "1"
    try:
        yield
    finally:
        os.environ.pop(VARIABLE, None)
