"""One run. In one process or on the master: controller and phases. In one process or on a worker:
sender and lease client."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType


class _CallableRoom(ModuleType):
    """`llama_load.run` is this room and, for users of Python, a function.

    Whoever imports a module of this room binds the room to that name of the package, so it must be
    the room that can be called.
    """

    def __call__(self, *arguments: object, **keywords: object) -> object:
        # By its name: no module of this room knows the lab.
        start = import_module("llama_load.lab.python_run").run
        result: object = start(*arguments, **keywords)
        return result


sys.modules[__name__].__class__ = _CallableRoom
