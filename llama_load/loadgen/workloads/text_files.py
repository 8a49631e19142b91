"""Text files: found in a folder, distinguished from binary files, decoded from any common
encoding."""

from __future__ import annotations

import codecs
import hashlib
import random
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from llama_load.ground.errors import UsageError
from llama_load.outside.foreign_files import (
    LeadsOutsideError,
    TooLarge,
    files_below,
    open_foreign,
)

# Of a trace: 20 million requests. It is decoded in memory, at up to four bytes a character.
MOST_BYTES = 1024 * 2**20
# 60 million tokens, more than a plan sends.
MOST_DOCUMENT_BYTES = 256 * 2**20
# UTF-32 goes first: its little-endian mark begins with UTF-16's.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Control characters that text does not have; tab, line ends, form feed, backspace and escape occur
# in logs and listings.
_CONTROL = re.compile(r"[\x00-\x07\x0e-\x1a\x1c-\x1f\x7f]")
_FOREIGN = re.compile(r"[^\x00-\x7f]")
_FOREIGN_RUN = re.compile(r"[^\x00-\x7f]{2,}")


@dataclass(frozen=True, slots=True)
class TextFile:
    """A text file: its text without byte order mark, and the SHA-256 of its bytes."""

    path: Path
    text: str
    sha256: str


def text_files(path: Path, seed: int) -> Iterator[TextFile]:
    """The text at a path: a file, or all text files of a folder and its subfolders, in an order set
    by the seed.

    Skips dot files, empty files and binary files in a folder. Reads files lazily, one at a time.
    UsageError: no such path, or no text in it.
    """
    if path.is_dir():
        found = folder_files(path)
        random.Random(seed).shuffle(found)
        count = 0
        for file in found:
            data = _document(file)
            if (text := decoded(data)) is not None and text.strip():
                count += 1
                yield TextFile(file, text, hashlib.sha256(data).hexdigest())
        if not count:
            raise UsageError(
                f"the folder {path} contains no text file; give a file or a folder of UTF-8 text "
                "with --document"
            )
        return
    data = _document(path)
    text = decoded(data)
    if text is None:
        raise UsageError(
            f"the document {path} is not text in UTF-8, UTF-16 or GB18030; save it as a text file"
        )
    if not text.strip():
        raise UsageError(f"the document {path} is empty")
    yield TextFile(path, text, hashlib.sha256(data).hexdigest())


def folder_files(folder: Path, is_wanted: Callable[[Path], bool] = bool) -> list[Path]:
    """The files of a folder and its subfolders, see `files_below`. UsageError: a link leads out of
    it, or there are too many."""
    try:
        return files_below(folder, is_wanted)
    except (LeadsOutsideError, TooLarge) as error:
        raise UsageError(str(error)) from None


def _document(path: Path) -> bytes:
    missing = "; give the path of a text file or folder with --document"
    return read_whole(
        path,
        "document",
        MOST_DOCUMENT_BYTES,
        missing=missing,
        too_large="; give a part of it",
    )


def read_whole(
    path: Path, what: str, most_bytes: int, *, missing: str = "", too_large: str = ""
) -> bytes:
    """The bytes of a file or pipe. UsageError: there is none, it cannot be read, or it has more
    bytes; the message names `what` it is to be, and ends with `missing` or `too_large`."""
    try:
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):  # a device has no end
            raise UsageError(f"the {what} {path} is not a regular file")
        is_pipe = stat.S_ISFIFO(mode)  # as from <(…)
        with path.open("rb") if is_pipe else open_foreign(path, most_bytes) as file:
            data = file.read(most_bytes + 1)
        if len(data) > most_bytes:
            raise TooLarge
    except FileNotFoundError:
        raise UsageError(f"there is no {what} at {path}{missing}") from None
    except OSError as error:
        raise UsageError(
            f"the {what} {path} cannot be read: {error.strerror}"
        ) from None
    except TooLarge:
        limit = (
            f"{most_bytes // 2**20} MiB"
            if most_bytes >= 2**20
            else f"{most_bytes // 1024} KiB"
        )
        raise UsageError(
            f"the {what} {path} is larger than {limit}{too_large}"
        ) from None
    return data


def decoded(data: bytes) -> str | None:
    """The text of these bytes: UTF-8 (with a few broken characters), UTF-16, GB18030 or
    Windows-1252; None if binary."""
    text = _decoded(data)
    return (
        text
        if text is not None and 100 * len(_CONTROL.findall(text)) <= len(text)
        else None
    )


def _decoded(data: bytes) -> str | None:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    if b"\0" in data:
        return _utf16_without_mark(data)
    with suppress(UnicodeDecodeError):
        return data.decode()
    text = data.decode("utf-8", "replace")
    if 10 * text.count("\ufffd") <= len(_FOREIGN.findall(text)):
        return text
    try:
        text = data.decode("gb18030")
    except UnicodeDecodeError:
        pass
    else:
        # Western text misread as Chinese has single characters where accents were; Chinese has runs
        # of them.
        if 2 * sum(map(len, _FOREIGN_RUN.findall(text))) >= len(_FOREIGN.findall(text)):
            return text
    text = data.decode("cp1252", "replace")
    return text if 5 * len(_FOREIGN.findall(text)) <= len(text) else None


def _utf16_without_mark(data: bytes) -> str | None:
    """The byte order that gives printable text with more spaces and line ends; None if neither
    does."""
    readings = []
    for encoding in ("utf-16-le", "utf-16-be"):
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        if "\0" not in text and 100 * sum(
            not (sign.isprintable() or sign.isspace()) for sign in text
        ) <= len(text):
            readings.append(text)
    return max(
        readings, key=lambda text: text.count(" ") + text.count("\n"), default=None
    )


def files_digest(digests: Sequence[str]) -> str:
    """The identity of the files read: the SHA-256 of the only one, or of all SHA-256 in reading
    order."""
    return (
        digests[0]
        if len(digests) == 1
        else hashlib.sha256("".join(digests).encode()).hexdigest()
    )
