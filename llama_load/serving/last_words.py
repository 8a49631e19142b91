"""The beginning and the end of a server's log: the lines that say why it ended, and the cause that they name."""

from __future__ import annotations

import os
import re
from pathlib import Path

from llama_load.foreign_text import printable, quotes_text

LINES = 8
# A log begins with the load of the model, and ends with the last words; what is between them are requests.
END_BYTES = 512 * 2**10
TAIL_CHARS = 64 * 1024
MOST_LINES = 400
# Where such a line stands near the end, what follows is often a backtrace of a debugger, which hides it.
_FATAL = re.compile(
    r"GGML_ASSERT|\bE \b|[Ee]rror\b|ERROR|crashed|out of memory|[Ff]ailed|Aborted|terminate called|Traceback|cannot|unable to"
)
_BACKTRACE = re.compile(r"^#\d+ |^\[(?:New LWP|Thread|Inferior)|^Using host libthread|^\d+\W+in |No such file or directory\.$")
# What the last lines are about; the first match counts.
_CAUSES = (
    (re.compile(r"Remote RPC server crashed|ggml-rpc\.cpp:\d+"), "an RPC worker was lost"),
    (
        re.compile(r"out of memory|cudaMalloc failed|failed to allocate|OutOfMemoryError|ErrorOutOfDeviceMemory|std::bad_alloc"),
        "out of memory",
    ),
    (re.compile(r"GGML_ASSERT\(|Assertion .*failed"), "an assertion failed"),
)


def last_words(log: Path) -> str:
    """`an RPC worker was lost; /…/server.log ends with:` and up to 8 lines; "" if the log cannot be read, or is empty."""
    tail = "".join(ends_of(log))[-TAIL_CHARS:].splitlines()[-MOST_LINES:]
    printed = [printable(line.expandtabs(2)) for line in tail]
    lines = [line for line in printed if line.strip() and not _BACKTRACE.search(line) and not quotes_text(line)]
    if not lines:
        return ""
    fatal = next((number for number, line in enumerate(lines) if number >= len(lines) - 40 and _FATAL.search(line)), len(lines))
    first = min(fatal, max(0, len(lines) - LINES))
    cause = next((cause for pattern, cause in _CAUSES if any(map(pattern.search, lines[-40:]))), "")
    shown = lines[first : first + LINES]
    return (f"{cause}; " if cause else "") + f"{log} ends with:\n" + "\n".join(shown)


def ends_of(path: Path) -> tuple[str, str]:
    """The beginning and the end of a file, which do not overlap; both "" if it cannot be read."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            head = file.read(END_BYTES)
            file.seek(max(len(head), size - END_BYTES))
            return head.decode(errors="replace"), file.read(END_BYTES).decode(errors="replace")
    except OSError:
        return "", ""
