"""Commands that start modules in this Python, and the environments of all programs that we start:
the only place that makes them."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping
from types import MappingProxyType

# Without it `python -m` imports from the working directory first, which may hold files of others:
# a json.py there would run in place of Python's.
NOT_FROM_HERE = "-P"
# Begins the names of all our variables, many of which hold keys.
OURS = "LLAMA_LOAD_"
_NONE: Mapping[str, str] = MappingProxyType({})


def module_command(module: str, *words: str) -> list[str]:
    """The command of this module with these words, which imports nothing from the working
    directory."""
    return [sys.executable, NOT_FROM_HERE, "-m", module, *words]


def child_environment(named: Mapping[str, str] = _NONE) -> dict[str, str]:
    """For a program that is not ours: the environment without variables of llama-load, and these.

    Servers, meters and commands of plans get a key only where it is named.
    """
    kept = {}
    for name, value in os.environ.items():
        if not name.startswith(OURS):
            kept[name] = value
    return kept | dict(named)


def module_environment(
    named: Mapping[str, str] = _NONE, without: Collection[str] = ()
) -> dict[str, str]:
    """For a program of ours, which may send requests: the environment with these variables, and
    without those."""
    kept = {}
    for name, value in os.environ.items():
        if name not in without:
            kept[name] = value
    return kept | dict(named)
