"""Reads flags as values, from the command line, the environment or the web UI, and collects their
faults."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from llama_load.loadgen.options.flag import Flag
from llama_load.loadgen.options.flag_limits import MOST
from llama_load.loadgen.options.flags import FLAGS

Parsed = TypeVar("Parsed")
BY_DEST = {flag.dest: flag for flag in FLAGS}
# What turns a flag without a value on, in the environment and in the web UI.
ON = frozenset(("true", "1", "on", "yes"))


class FlagReader:
    """The flags of Locust's parsed options. An invalid value becomes None, with a message in
    `faults`."""

    def __init__(self, namespace: Any) -> None:
        self.raw = {
            dest: getattr(namespace, dest, flag.default)
            for dest, flag in BY_DEST.items()
        }
        self.faults: list[str] = []
        for dest, flag in BY_DEST.items():
            value = self.raw[dest]
            texts = value if isinstance(value, list | tuple) else [value]
            for text in texts:
                if isinstance(text, str) and not _is_utf8(text):
                    self.faults.append(f"{flag.name} must be UTF-8 text")

    def text(self, name: str) -> str | None:
        """A text, None if it is empty."""
        value = self.raw[name]
        if value is None:
            return None
        return str(value).strip() or None

    def lines(self, name: str, *, words: bool = False) -> list[str]:
        """The values of a repeated flag, or the lines (or words) of a text field."""
        value = self.raw[name] or []
        parts = value if isinstance(value, list | tuple) else str(value).splitlines()
        if words:
            return " ".join(parts).split()
        return [part.strip() for part in parts if part.strip()]

    def texts(self, flag: Flag) -> list[str]:
        """The values that are not empty: the lines of a repeated flag, else at most one."""
        if flag.repeated:
            return self.lines(flag.dest)
        text = self.text(flag.dest)
        return [] if text is None else [text]

    def switch(self, name: str) -> bool:
        """A flag without a value."""
        return str(self.raw[name]).lower() in ON

    def number(
        self,
        name: str,
        kind: type[int] | type[float],
        least: float,
        *,
        most: float = MOST,
        above: bool = False,
        other: str = "",
    ) -> Any:
        """A number from `least` (or above it) to `most`; None if not given. `other` is a word
        accepted as well, for the message."""
        given = self.text(name)
        if given is None:
            return None
        try:
            value: float = kind(given)
        except ValueError:
            value = math.nan
        is_enough = value > least if above else value >= least
        if is_enough and value <= most:
            return value

        flag = "--" + name.replace("_", "-")
        a_number = "a whole number" if kind is int else "a number"
        bound = f"above {least:g}" if above else f"of at least {least:g}"
        if value > most:
            bound = f"of at most {most:,.0f}"
        if other:
            bound += f" or {other!r}"
        self.faults.append(f"{flag} must be {a_number} {bound}, got {given!r}")
        return None

    def parsed(
        self, name: str, parse: Callable[[str], Parsed], *, words: bool = False
    ) -> list[Parsed]:
        """The lines (or words) of a flag, parsed by `parse`; invalid ones are left out."""
        values = []
        for value in self.lines(name, words=words):
            try:
                values.append(parse(value))
            except ValueError as error:
                self.faults.append(str(error))
        return values

    def path(self, name: str) -> Path | None:
        """The path of a file or folder; None if not given."""
        given = self.text(name)
        return None if given is None else Path(given)

    def chosen(self, name: str) -> str | None:
        """One of the words of the flag's row; None if not given."""
        given = self.text(name)
        flag = BY_DEST[name]
        choices = flag.choices or ()
        if given is not None and given not in choices:
            words = ", ".join(choice for choice in choices if choice)
            self.faults.append(f"{flag.name} must be one of {words}, got {given!r}")
        return given

    def switched(self, name: str) -> bool | None:
        """on or off; None if not given."""
        given = self.chosen(name)
        return None if given is None else given == "on"


def _is_utf8(text: str) -> bool:
    """Whether it is valid UTF-8: invalid bytes on a command line arrive as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
