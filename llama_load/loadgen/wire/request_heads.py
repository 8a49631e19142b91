"""Heads of requests of strangers, who have not shown yet who they are: bounded as a whole, and read
in linear time."""

from __future__ import annotations

from collections.abc import Iterator
from http.client import LineTooLong
from typing import Protocol

# As in front of most servers. http.client takes a hundred lines of 64 KiB.
MOST_HEAD_BYTES = 64 << 10


class _Lines(Protocol):
    def readline(self, size: int, /) -> bytes:
        """The next line, or so many bytes of it."""


class BoundedHead:
    """The lines of one head, as `http.client.parse_headers` reads them."""

    def __init__(self, source: _Lines) -> None:
        self._source = source
        self._left = MOST_HEAD_BYTES

    def readline(self, most: int = -1) -> bytes:
        """The next line. Raises LineTooLong: the head has more than `MOST_HEAD_BYTES`."""
        allowed = self._left + 1
        line = self._source.readline(allowed if most < 0 else min(most, allowed))
        self._left -= len(line)
        if self._left < 0:
            raise LineTooLong("head of a request")
        return line


def cookies_of(field: str) -> Iterator[tuple[str, str]]:
    """Names and values of a field `Cookie`, as they stand there (RFC 6265, section 5.4).

    `http.cookies` takes quadratic time for backslashes behind a quote, and reads attributes and
    quotes that no browser sends.
    """
    for pair in field.split(";"):
        name, sign, value = pair.partition("=")
        if sign:
            yield name.strip(), value.strip()
