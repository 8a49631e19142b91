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
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

VARIABLE = "OPENBLAS_NUM_THREADS"


def load_numpy_without_threads() -> None:
    """From now on: whoever imports numpy in this process gets it with one thread, unless the
    environment says how many."""
    if "numpy" not in sys.modules and VARIABLE not in os.environ:
        sys.meta_path.insert(0, _NumpyFinder())


class _NumpyFinder(MetaPathFinder):
    """Finds numpy once, as Python would."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if fullname != "numpy":
            return None

        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _NumpyLoader(spec.loader)
        return spec


class _NumpyLoader(Loader):
    """Loads numpy as its own loader does, which stays the module's."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        with _one_thread():
            self._loader.exec_module(module)


@contextmanager
def _one_thread() -> Iterator[None]:
    # OpenBLAS reads it once. Servers that are started from here inherit nothing of it.
    os.environ[VARIABLE] = "1"
    try:
        yield
    finally:
        os.environ.pop(VARIABLE, None)
