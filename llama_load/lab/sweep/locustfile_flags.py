"""Flags of `locust` as a plan writes them: names without dashes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from llama_load.errors import did_you_mean
from llama_load.foreign_files import begin_of
from llama_load.lab.sweep.plan import FlagValues
from llama_load.options.flag import Kind
from llama_load.options.flags import FLAGS, OF_LOCUST

# Locust's own flags that make sense in a cell.
LETTERS = {name.lstrip("-"): flag for flag in OF_LOCUST if flag.name != "--host" for name in (flag.name, *flag.also)}
LOCUSTS = (
    *LETTERS,
    "processes",
    "stop-timeout",
    "config",
    "tags",
    "exclude-tags",
    "loglevel",
)
# The sweep sets these.
OURS = ("host", "H", "run-dir", "headless", "f", "locustfile", "web-port", "autostart", "master", "worker")
FLAGS_BY_NAME = {flag.plain: flag for flag in FLAGS}
_KNOWN = sorted({*FLAGS_BY_NAME, *LOCUSTS})
MOST_BYTES = 1 << 20  # of a locustfile


def texts_of(locustfiles: Iterable[Path]) -> str:
    """The locustfiles as one text, in which flags of their own are looked for; what is no file is left out."""
    texts = []
    for path in locustfiles:
        with suppress(OSError):
            texts.append(begin_of(path, MOST_BYTES).decode("utf-8", "replace"))
    return "\n".join(texts)


def flag_fault(name: str, locustfiles: str = "") -> str:
    """Why a flag cannot be given in a plan; empty if it can. `locustfiles`: texts that may define further flags."""
    if name in OURS:
        return f"{name} is set by the sweep itself; leave it out"
    flag = FLAGS_BY_NAME.get(name)
    if flag is not None and flag.secret and flag.kind is not Kind.HEADER:  # not every header is one
        return f"{name} is secret, and plans are stored: set {flag.environment} in the environment instead"
    option = f"-{name}" if len(name) == 1 else f"--{name}"
    if name in _KNOWN or re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", locustfiles):
        return ""
    return f"locust has no flag {name}{did_you_mean(name, _KNOWN) or '; llama-load flags lists them'}"


def flag_words(flags: FlagValues) -> list[str]:
    """The command line of these flags: a switch without its value, repeated flags several times, other lists joined by commas."""
    words: list[str] = []
    for name, values in flags.items():
        if values == [""]:  # a value of `set` that was left empty
            continue
        option = f"-{name}" if len(name) == 1 else f"--{name}"
        flag = FLAGS_BY_NAME.get(name)
        if (flag is not None and flag.switch) or isinstance(values[-1], bool):
            words += [option] * (values[-1] is True)
        elif flag is not None and flag.repeated:
            words += [word for value in values for word in (option, str(value))]
        else:
            words += [option, ",".join(map(str, values))]
    return words


def merged(*parts: Mapping[str, list[object]]) -> FlagValues:
    """Flags of several places, the later ones first choice; short names count as the long ones."""
    flags: dict[str, tuple[str, list[object]]] = {}
    for part in parts:
        for name, values in part.items():
            flags[LETTERS[name].name if name in LETTERS else name] = (name, values)
    return dict(flags.values())
