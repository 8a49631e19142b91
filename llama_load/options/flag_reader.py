"""Reads flags as values, from the command line, the environment or the web UI, and collects their faults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from llama_load.options.flag import Flag
from llama_load.options.flags import FLAGS, MOST

Parsed = TypeVar("Parsed")


class FlagReader:
    """The flags of Locust's parsed options. An invalid value becomes None, with a message in `faults`."""

    def __init__(self, namespace: Any) -> None:
        self.raw = {flag.dest: getattr(namespace, flag.dest, flag.default) for flag in FLAGS}
        self.faults: list[str] = []
        for flag in FLAGS:
            value = self.raw[flag.dest]
            for text in value if isinstance(value, list | tuple) else [value]:
                if isinstance(text, str) and not _is_utf8(text):
                    self.faults.append(f"{flag.name} must be UTF-8 text")

    def text(self, name: str) -> str | None:
        """A text, None if it is empty."""
        value = self.raw[name]
        return str(value).strip() or None if value is not None else None

    def lines(self, name: str, *, words: bool = False) -> list[str]:
        """The values of a repeated flag, or the lines (or words) of a text field."""
        value = self.raw[name] or []
        parts = value if isinstance(value, list | tuple) else str(value).splitlines()
        return [word for part in parts for word in (part.split() if words else [part.strip()]) if word]

    def texts(self, flag: Flag) -> list[str]:
        """The values of a flag that are not empty: the lines of a repeated one, else at most one."""
        return self.lines(flag.dest) if flag.repeated else [text] if (text := self.text(flag.dest)) else []

    def switch(self, name: str) -> bool:
        """A flag without a value."""
        return self.raw[name] is True or str(self.raw[name]).lower() in ("true", "1", "on", "yes")

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
        """A number from `least` (or above it) to `most`; None if not given. `other` is a word accepted as well, for the message."""
        given = self.text(name)
        if given is None:
            return None
        flag = "--" + name.replace("_", "-")
        a_number = "a whole number" if kind is int else "a number"
        bound = f"{'above' if above else 'of at least'} {least:g}"
        try:
            value = kind(given)
            if (value > least or (value == least and not above)) and value <= most:
                return value
            if value > most:
                bound = f"of at most {most:,.0f}"
        except ValueError:
            pass
        self.faults.append(f"{flag} must be {a_number} {bound}{f' or {other!r}' if other else ''}, got {given!r}")
        return None

    def parsed(self, name: str, parse: Callable[[str], Parsed], *, words: bool = False) -> list[Parsed]:
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
        (flag,) = (flag for flag in FLAGS if flag.dest == name)
        if given is not None and given not in (flag.choices or ()):
            self.faults.append(f"{flag.name} must be one of {', '.join(filter(None, flag.choices or ()))}, got {given!r}")
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
