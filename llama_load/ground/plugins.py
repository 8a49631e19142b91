"""What installed packages add: topics, kinds of servers, formats and workloads, by entry points.

A package names them in its pyproject.toml, as `examples/plugin/` does:

    [project.entry-points."llama_load.formats"]
    parrot = "parrot_plugin.parrot_format:PARROT_FORMAT"

They are code of that package, which runs with the rights of the user, as the package itself.
"""

from __future__ import annotations

import sys
import warnings
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

TOPICS = "llama_load.analysis.topics"
SERVERS = "llama_load.servers"
FORMATS = "llama_load.formats"
WORKLOADS = "llama_load.loadgen.workloads"

# What the file of a package's entry points has if there are some of ours.
_OURS = b"[llama_load."

T = TypeVar("T")


@cache
def _is_there_any() -> bool:
    """Whether any installed package adds something.

    Nearly always there is none, and `importlib.metadata` takes longer to import than this.
    """
    for folder in sys.path:
        for file in Path(folder or ".").glob("*-info/entry_points.txt"):
            try:
                if _OURS in file.read_bytes():
                    return True
            except OSError:
                continue

    return False


@cache
def _named(group: str) -> list[EntryPoint]:
    """The entry points of a group, by name."""
    if not _is_there_any():
        return []

    from importlib.metadata import entry_points

    return sorted(entry_points(group=group), key=lambda entry: entry.name)


def added(group: str, kind: type[T]) -> list[T]:
    """The objects of this type that installed packages add.

    One that cannot be loaded is left out with a warning: it must not keep others from measuring.
    """
    found: list[T] = []
    for entry in _named(group):
        try:
            value = entry.load()
        except Exception as error:
            _left_out(entry, repr(error))
            continue

        if isinstance(value, kind):
            found.append(value)
        else:
            _left_out(entry, f"it is a {type(value).__name__}, not a {kind.__name__}")

    return found


def added_locustfiles() -> dict[str, Path]:
    """The locustfiles that installed packages add, by name. They are not imported."""
    files = {}
    for entry in _named(WORKLOADS):
        try:
            spec = find_spec(entry.value)
        except (ImportError, ValueError) as error:
            _left_out(entry, repr(error))
            continue

        if spec is None or spec.origin is None:
            _left_out(entry, "there is no such module")
        else:
            files[entry.name] = Path(spec.origin)

    return files


def _left_out(entry: EntryPoint, why: str) -> None:
    package = entry.dist.name if entry.dist is not None else "a package"
    warnings.warn(
        f"{entry.value} ({entry.group}) of {package} is left out: {why}", stacklevel=3
    )
