"""Imports of many modules at once, in less time."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from llama_load.ground.code_cache import dataclasses_compiled_once


@contextmanager
def fast_imports() -> Iterator[None]:
    """Inside, the methods of dataclasses need not be compiled, and no garbage is collected: imports
    leave none, and a full collection takes as long as 30 modules.

    In a process of Locust, which runs load tests alone, no later collection looks at what is loaded
    either.
    """
    was_enabled = gc.isenabled()
    before = len(sys.modules)
    gc.disable()
    try:
        with dataclasses_compiled_once():
            yield
    finally:
        if "locust.main" in sys.modules and len(sys.modules) > before:
            gc.freeze()
        if was_enabled:
            gc.enable()
