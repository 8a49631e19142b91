"""stdout and stderr on which printing never fails: not with a closed pipe, a full disk, or an
encoding without our characters; and which show no secret.

This covers everything that prints: our own lines, rich's tables, Locust's log and tables.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
import unicodedata
from typing import Any

from llama_load.outside.foreign_text import redacted

ERRORS = "llama_load_ascii"
# From so many requests on, their figures take several seconds (4 s per 100,000 requests of 200
# tokens on one core).
MANY = 100_000
# Environment variable, set by a command that starts Locust for the user, such as `llama-load demo`:
# the command that was typed.
STARTED_AS = "LLAMA_LOAD_STARTED_AS"
# Replacements for the non-ASCII characters of our reports, tables and messages, for encodings that
# lack them.
_PLAIN = {
    **{
        "…": "...",
        "–": "-",
        "—": "-",
        "−": "-",
        "·": "-",
        "•": "*",
        "✓": "+",
        "✗": "x",
        "×": "x",
        "→": "->",
        "←": "<-",
    },
    **{
        "±": "+/-",
        "≤": "<=",
        "≥": ">=",
        "≈": "~",
        "≠": "!=",
        "µ": "u",
        "μ": "u",
        "½": "1/2",
        "’": "'",
        "‘": "'",
    },
    **{
        "“": '"',
        "”": '"',
        "„": '"',
        "σ": "sigma",
        "─": "-",
        "━": "-",
        "═": "=",
        "╸": "-",
        "╺": "-",
        "│": "|",
        "┃": "|",
        "║": "|",
    },
}


class SafeOutput(io.FileIO):
    """A file descriptor on which writing never fails: after the first error output is dropped.
    stderr reports the error, except for a closed pipe."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._is_lost = False

    def write(self, data: Any) -> Any:
        """Write the data, or drop it after an error."""
        size = memoryview(data).nbytes
        if self._is_lost:
            return size
        try:
            return super().write(data)
        except OSError as error:
            self._is_lost = True
            if error.errno not in (errno.EPIPE, errno.EBADF) and self.fileno() != 2:
                complain(f"the output was cut: {error.strerror}")
            return size


def complain(sentence: str) -> None:
    """Write a line to stderr, unbuffered. Safe in signal handlers."""
    try:
        os.write(2, f"llama-load: {sentence}\n".encode("ascii", "replace"))
    except OSError:
        return


def print_token(sentence: str) -> None:
    """Write a line with a token that is made for the person at the terminal: the only one that is
    not redacted."""
    complain(sentence)


def make_output_safe() -> None:
    """Put `SafeOutput` below this process's stdout and stderr, unless they have been replaced
    already."""
    codecs.register_error(ERRORS, _as_ascii)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # its descriptor was closed before we began
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123
        elif stream is getattr(sys, f"__{name}__"):
            setattr(sys, name, _safe(stream))


class RedactedText(io.TextIOWrapper):
    """Text for a terminal, a pipe or a log, without known secrets: whatever is printed goes through
    here."""

    def write(self, text: str) -> int:
        """See io.TextIOBase.write."""
        super().write(redacted(text))
        return len(text)


def _safe(stream: Any) -> Any:
    try:
        stream.flush()
        raw = SafeOutput(stream.fileno())
    except (OSError, ValueError):
        return stream
    errors = (
        stream.errors
        if stream.errors in ("backslashreplace", "surrogateescape")
        and stream.encoding == "utf-8"
        else ERRORS
    )
    return RedactedText(
        io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _as_ascii(error: UnicodeError) -> tuple[str, int]:
    """A codec error handler: replaces characters that the encoding lacks by ASCII."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(
        map(_closest_ascii, error.object[error.start : error.end])
    ), error.end


def _closest_ascii(character: str) -> str:
    """The closest ASCII: from the table, # for blocks of a bar, by decomposition (é: e), else a
    question mark."""
    if character in _PLAIN:
        return _PLAIN[character]
    if "▀" <= character <= "▟":
        return "#"
    return (
        unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
        or "?"
    )


def announce(step: str, requests: int) -> None:
    """Print what is done next where it takes seconds."""
    if requests >= MANY:
        print(f"{requests:,} requests: {step}", file=sys.stderr, flush=True)
