"""Takes from every Python process what Windows and macOS lack, as far as llama_load uses it.

Python imports this module at its start where this folder is on PYTHONPATH. Other packages keep the
modules, /proc and fork, because they were built for this system.
"""

from __future__ import annotations

import builtins
import os
import select
import sys
from types import FrameType
from typing import Any

MODULES = frozenset(("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"))
LLAMA_LOAD = "llama_load"
_import = builtins.__import__
_fork = os.fork


def asked_by_us(frame: FrameType | None) -> bool:
    """Whether the nearest code that is not Python's own is llama_load's."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        package = module.partition(".")[0]
        if package == LLAMA_LOAD:
            return True
        if package not in sys.stdlib_module_names and module != __name__:
            return False
        frame = frame.f_back
    return False


def importing(name: str, names: Any = None, *others: Any, **how: Any) -> Any:
    asked_by = str((names or {}).get("__name__"))
    if name in MODULES and asked_by.partition(".")[0] == LLAMA_LOAD:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return _import(name, names, *others, **how)


def forking() -> int:
    """gevent replaces it, and so needs one."""
    if asked_by_us(sys._getframe(1)):
        raise AttributeError("module 'os' has no attribute 'fork'")
    return _fork()


def without_proc(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in ("open", "os.listdir", "os.scandir"):
        return
    path = arguments[0]
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    is_proc = isinstance(path, str) and path.startswith("/proc/")
    if is_proc and asked_by_us(sys._getframe(1)):
        raise FileNotFoundError(2, "No such file or directory", path)


builtins.__import__ = importing
sys.addaudithook(without_proc)
os.fork = forking
del os.forkpty
for epoll_name in [name for name in vars(select) if "epoll" in name.lower()]:
    delattr(select, epoll_name)
