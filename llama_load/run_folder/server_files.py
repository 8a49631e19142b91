"""The folder server/ in a run folder: a server's log, its lines about memory, and its command."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from llama_load.outside.foreign_files import TooLarge, read_foreign
from llama_load.outside.foreign_text import printable_lines, quotes_text
from llama_load.run_folder.whole_file import write_whole

SERVER_FOLDER = "server"
MIDDLE_LEFT_OUT = "… (the middle of the log is left out)"
# A run keeps texts only with --save-texts, in its own table.
LEFT_OUT = "… (a line that may quote a request or an answer is left out)"
# Of the log's beginning and of its end. The beginning tells what was loaded, the end how it went.
MOST_CHARS = 512 * 2**10
# A character has up to four bytes.
MOST_BYTES = 8 * MOST_CHARS + 4096


@dataclass(frozen=True, slots=True)
class ServerFiles:
    """What is kept of one server; None or empty: not known."""

    log: tuple[str, str] = ("", "")  # its beginning and its end
    memory_lines: Sequence[str] = ()
    command: str | None = None


def write_server_files(folder: Path, servers: Sequence[ServerFiles]) -> None:
    """Write server/ into the run folder; with several servers server/1, server/2, … in their order.
    Raises OSError."""
    for number, server in enumerate(servers, 1):
        texts = {
            "server.log": shortened(*server.log),
            "memory.log": "\n".join(server.memory_lines),
            "command": server.command or "",
        }
        place = (
            folder / SERVER_FOLDER
            if len(servers) == 1
            else folder / SERVER_FOLDER / str(number)
        )
        for name, text in texts.items():
            if text:
                place.mkdir(
                    parents=True, exist_ok=True, mode=folder.stat().st_mode & 0o777
                )
                write_whole(place / name, _clean(text).encode() + b"\n")


def kept_logs(folder: Path, servers: Sequence[str]) -> dict[str, str]:
    """The logs in a run folder, by the URLs of its servers, which are in the order of the run. One
    that is missing or too large has none."""
    logs = {}
    for number, url in enumerate(servers, 1):
        place = folder / SERVER_FOLDER
        if len(servers) > 1:
            place /= str(number)
        with suppress(OSError, TooLarge):
            data = read_foreign(place / "server.log", MOST_BYTES, inside=folder)
            logs[url] = data.decode(errors="replace")
    return logs


def _clean(text: str) -> str:
    lines = text.rstrip("\n").split("\n")
    return printable_lines(
        "\n".join(LEFT_OUT if quotes_text(line) else line for line in lines)
    )


def shortened(head: str, tail: str) -> str:
    """A log of this beginning and end, with a line for its middle if that is missing."""
    if len(head) <= MOST_CHARS and not tail:
        return head
    end = (head[MOST_CHARS:] + tail)[-MOST_CHARS:]
    left_out = (
        "" if len(head) + len(tail) <= 2 * MOST_CHARS else f"\n{MIDDLE_LEFT_OUT}\n"
    )
    return head[:MOST_CHARS] + left_out + end
