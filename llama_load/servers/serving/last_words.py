"""The lines at the end of a server's log that say why it ended, and the cause that they name."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from llama_load.ground.open_flags import NO_WAIT
from llama_load.outside.foreign_text import printable, quotes_text

LINES = 8
# A log begins with the load of the model, and ends with the last words; between them are requests.
END_BYTES = 512 * 2**10
TAIL_CHARS = 64 * 1024
MOST_LINES = 400
# A line that says what failed is looked for among so many.
FATAL_WITHIN = 40
# A line that says what failed. After it often comes a debugger's backtrace, longer than what is
# shown.
_FATAL = re.compile(
    r"GGML_ASSERT|\bE \b|[Ee]rror\b|ERROR|crashed|out of memory|[Ff]ailed|Aborted|terminate "
    r"called|Traceback|cannot|unable to"
)
_BACKTRACE = re.compile(
    r"^#\d+ |^\[(?:New LWP|Thread|Inferior)|^Using host libthread|^\d+\W+in |No such file or "
    r"directory\.$"
)
# What the last lines are about; the first match counts.
_CAUSES = (
    (
        re.compile(r"Remote RPC server crashed|ggml-rpc\.cpp:\d+"),
        "an RPC worker was lost",
    ),
    (
        re.compile(
            r"out of memory|cudaMalloc failed|failed to "
            r"allocate|OutOfMemoryError|ErrorOutOfDeviceMemory|std::bad_alloc"
        ),
        "out of memory",
    ),
    (re.compile(r"GGML_ASSERT\(|Assertion .*failed"), "an assertion failed"),
)


def last_words(log: Path) -> str:
    """`an RPC worker was lost; /…/server.log ends with:` and up to 8 lines.

    "" if the log cannot be read, or is empty.
    """
    lines = _telling_lines(log)
    if not lines:
        return ""

    first = max(0, len(lines) - LINES)
    for number in range(max(0, len(lines) - FATAL_WITHIN), first):
        if _FATAL.search(lines[number]):
            first = number
            break

    text = f"{log} ends with:\n" + "\n".join(lines[first : first + LINES])
    cause = _cause(lines[-FATAL_WITHIN:])
    return f"{cause}; {text}" if cause else text


def _telling_lines(log: Path) -> list[str]:
    """The last lines of a log without blanks, backtraces and what quotes prompts or answers."""
    text = "".join(ends_of(log))[-TAIL_CHARS:]
    lines = []
    for raw in text.splitlines()[-MOST_LINES:]:
        line = printable(raw.expandtabs(2))
        if line.strip() and not _BACKTRACE.search(line) and not quotes_text(line):
            lines.append(line)
    return lines


def _cause(lines: Sequence[str]) -> str:
    """What these lines are about; "" if that is not known."""
    for pattern, cause in _CAUSES:
        if any(pattern.search(line) for line in lines):
            return cause
    return ""


def ends_of(path: Path) -> tuple[str, str]:
    """The beginning and the end of a file, which do not overlap; both "" if it cannot be read."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | NO_WAIT), "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            head = file.read(END_BYTES)
            file.seek(max(len(head), size - END_BYTES))
            tail = file.read(END_BYTES)
    except OSError:
        return "", ""
    return head.decode(errors="replace"), tail.decode(errors="replace")
