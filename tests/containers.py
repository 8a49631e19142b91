"""How much objects keep, for tests of what must not grow with a run."""

from __future__ import annotations

import gc
from collections import deque
from types import CodeType, FunctionType, ModuleType

import gevent


def contained(*roots: object) -> int:
    """How many elements all containers have that can be reached from these objects."""
    seen: set[int] = set()
    left, found = list(roots), 0
    while left:
        each = left.pop()
        if id(each) in seen or isinstance(
            each,
            type | ModuleType | FunctionType | gevent.Greenlet | CodeType | str | bytes,
        ):
            continue
        seen.add(id(each))
        found += len(each) if isinstance(each, dict | list | set | deque | tuple) else 0
        left += gc.get_referents(each)
    return found
