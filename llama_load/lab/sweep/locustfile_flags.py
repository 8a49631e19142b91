"""Flags of `locust` as a plan writes them: names without dashes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from llama_load.ground.errors import did_you_mean
from llama_load.lab.sweep.plan import FlagValues
from llama_load.loadgen.options.flag import Flag, Kind
from llama_load.loadgen.options.flags import FLAGS
from llama_load.loadgen.options.sections.locust_section import OF_LOCUST
from llama_load.outside.foreign_files import begin_of

# Locust's own flags that make sense in a cell.
LETTERS: dict[str, Flag] = {}
for _flag in OF_LOCUST:
    if _flag.name != "--host":
        for _name in (_flag.name, *_flag.also):
            LETTERS[_name.lstrip("-")] = _flag
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
OURS = (
    "host",
    "H",
    "run-dir",
    "headless",
    "f",
    "locustfile",
    "web-port",
    "autostart",
    "master",
    "worker",
)
FLAGS_BY_NAME = {flag.plain: flag for flag in FLAGS}
_KNOWN = sorted({*FLAGS_BY_NAME, *LOCUSTS})
MOST_BYTES = 1 << 20  # of a locustfile


def texts_of(locustfiles: Iterable[Path]) -> str:
    """The locustfiles as one text, in which flags of their own are looked for.

    What is no file is left out.
    """
    texts = []
    for path in locustfiles:
        with suppress(OSError):
            texts.append(begin_of(path, MOST_BYTES).decode("utf-8", "replace"))
    return "\n".join(texts)


def flag_fault(name: str, locustfiles: str = "") -> str:
    """Why a flag cannot be given in a plan; empty if it can.

    `locustfiles`: texts that may define further flags.
    """
    if name in OURS:
        return f"{name} is set by the sweep itself; leave it out"

    flag = FLAGS_BY_NAME.get(name)
    if (
        flag is not None and flag.secret and flag.kind is not Kind.HEADER
    ):  # not every header is one
        return (
            f"{name} is secret, and plans are stored: "
            f"set {flag.environment} in the environment instead"
        )
    defined = rf"(?<![\w-]){re.escape(_option(name))}(?![\w-])"
    if name in _KNOWN or re.search(defined, locustfiles):
        return ""

    advice = did_you_mean(name, _KNOWN) or "; llama-load flags lists them"
    return f"locust has no flag {name}{advice}"


def _option(name: str) -> str:
    """The flag as it is typed."""
    return f"-{name}" if len(name) == 1 else f"--{name}"


def flag_words(flags: FlagValues) -> list[str]:
    """The command line of these flags.

    A switch without its value, repeated flags several times, other lists joined by commas.
    """
    words: list[str] = []
    for name, values in flags.items():
        if values == [""]:  # a value of `set` that was left empty
            continue

        option = _option(name)
        flag = FLAGS_BY_NAME.get(name)
        is_switch = flag is not None and flag.switch
        if is_switch or isinstance(values[-1], bool):
            if values[-1] is True:
                words.append(option)
        elif flag is not None and flag.repeated:
            for value in values:
                words += [option, str(value)]
        else:
            words += [option, ",".join(map(str, values))]
    return words


def merged(*parts: Mapping[str, list[object]]) -> FlagValues:
    """Flags of several places, the later ones first choice; short names count as the long ones."""
    flags: dict[str, tuple[str, list[object]]] = {}
    for part in parts:
        for name, values in part.items():
            long_name = LETTERS[name].name if name in LETTERS else name
            flags[long_name] = (name, values)
    return dict(flags.values())
