"""Reads files that others may have written: regular files alone, and never more than a limit, whatever their size."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import IO, Any

import msgspec

# run.json and summary.json of the longest runs have some MB; decoded, JSON takes up to twenty times its size.
MOST_JSON_BYTES = 32 << 20


class TooLarge(ValueError):
    """A file of others exceeds a limit."""


def open_foreign(file: Path, most_bytes: float, *, follows_links: bool = True) -> IO[bytes]:
    """The file, opened. Raises OSError if it cannot be read or is a pipe or device, TooLarge if it has more bytes."""
    no_link = 0 if follows_links else os.O_NOFOLLOW
    fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | no_link)  # a pipe would be waited for
    about = os.fstat(fd)
    opened = os.fdopen(fd, "rb") if stat.S_ISREG(about.st_mode) else None
    if opened is None:
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", str(file))
    if about.st_size > most_bytes:
        opened.close()
        raise TooLarge(f"{file.name} has {about.st_size >> 20:,} MiB, over the limit of {int(most_bytes) >> 20:,} MiB")
    return opened


def read_foreign(file: Path, most_bytes: int = MOST_JSON_BYTES, *, follows_links: bool = True) -> bytes:
    """Its bytes. Raises OSError and TooLarge."""
    with open_foreign(file, most_bytes, follows_links=follows_links) as opened:
        data = opened.read(most_bytes + 1)
    if len(data) > most_bytes:  # it grew
        raise TooLarge(f"{file.name} is over the limit of {most_bytes >> 20:,} MiB")
    return data


def read_foreign_json(file: Path, most_bytes: int = MOST_JSON_BYTES, *, follows_links: bool = True) -> dict[str, Any]:
    """The JSON object in it. Raises OSError, and ValueError where it holds none or is too large."""
    try:
        document = msgspec.json.decode(read_foreign(file, most_bytes, follows_links=follows_links))
    except RecursionError:
        raise ValueError(f"{file.name} is nested too deeply") from None
    if not isinstance(document, dict):
        raise ValueError(f"{file.name} holds no JSON object")
    return document
