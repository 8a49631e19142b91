"""Flags of `locust` as a plan writes them: names without dashes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from llama_load.lab.sweep.plan import FlagValues
from llama_load.options.flags import FLAGS

# Locust's own flags that make sense in a cell.
LOCUSTS = (
    "u",
    "users",
    "r",
    "spawn-rate",
    "t",
    "run-time",
    "processes",
    "stop-timeout",
    "config",
    "tags",
    "exclude-tags",
    "loglevel",
)
# The sweep sets these.
OURS = ("host", "H", "run-dir", "headless", "f", "locustfile", "web-port", "autostart", "master", "worker")
SWITCHES = frozenset(flag.name.removeprefix("--") for flag in FLAGS if flag.switch)
_REPEATED = frozenset(flag.name.removeprefix("--") for flag in FLAGS if flag.repeated)
_SECRET = frozenset(flag.name.removeprefix("--") for flag in FLAGS if flag.secret and not flag.repeated)
_KNOWN = frozenset(flag.name.removeprefix("--") for flag in FLAGS) | frozenset(LOCUSTS)
MOST_BYTES = 1 << 20  # of a locustfile


def texts_of(locustfiles: Iterable[Path]) -> str:
    """The locustfiles as one text, in which flags of their own are looked for; what is no file is left out."""
    texts = []
    for path in locustfiles:
        with suppress(OSError):
            if path.is_file():  # a pipe would be waited for
                with path.open("rb") as file:
                    texts.append(file.read(MOST_BYTES).decode("utf-8", "replace"))
    return "\n".join(texts)


def flag_fault(name: str, locustfiles: str = "") -> str:
    """Why a flag cannot be given in a plan; empty if it can. `locustfiles`: texts that may define further flags."""
    if name in OURS:
        return f"{name} is set by the sweep itself; leave it out"
    if name in _SECRET:
        return f"{name} is secret, and plans are stored: set LLAMA_LOAD_{name.upper().replace('-', '_')} in the environment instead"
    option = f"-{name}" if len(name) == 1 else f"--{name}"
    if name in _KNOWN or re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", locustfiles):
        return ""
    near = difflib.get_close_matches(name, sorted(_KNOWN), 1)
    return f"locust has no flag {name}; " + (f"did you mean {near[0]}?" if near else "llama-load flags lists them")


def flag_words(flags: FlagValues) -> list[str]:
    """The command line of these flags: a switch without its value, repeated flags several times, other lists joined by commas."""
    words: list[str] = []
    for name, values in flags.items():
        if values == [""]:  # a value of `set` that was left empty
            continue
        option = f"-{name}" if len(name) == 1 else f"--{name}"
        if name in SWITCHES or isinstance(values[-1], bool):
            words += [option] * (values[-1] is True)
        elif name in _REPEATED:
            words += [word for value in values for word in (option, str(value))]
        else:
            words += [option, ",".join(map(str, values))]
    return words


def merged(*parts: Mapping[str, list[object]]) -> FlagValues:
    """Flags of several places, the later ones first choice; short names count as the long ones."""
    long = {"u": "users", "t": "run-time", "r": "spawn-rate"}
    found: dict[str, tuple[str, list[object]]] = {}
    for part in parts:
        for name, values in part.items():
            found[long.get(name, name)] = (name, values)
    return dict(found.values())
