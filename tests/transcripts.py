"""What real servers sent, captured with curl (tests/data/transcripts): read back as bytes that can
be sent again.

Three layouts: a stream with the time of each line (`llama_stream.txt`), whole answers under a
`#####` title (`llama_cpp_server_rpc.txt`), error bodies under a `###` title with their status
(`llama_errors.txt`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.scripted_server import END, Step, chunk

FOLDER = Path(__file__).parent / "data" / "transcripts"
_TIMED = re.compile(r" *[\d.]+ms (?:\+| ) ?(.*)")


@dataclass(frozen=True)
class Capture:
    """One answer: its head as lines, its body, and whether curl saw it end well."""

    head: list[str]
    body: str
    whole: bool

    @property
    def steps(self) -> list[Step]:
        """The same answer for a `ScriptedServer`: each event in a separate chunk."""
        names = {line.partition(":")[0].lower() for line in self.head}
        lines = [
            line for line in self.head if not line.lower().startswith("content-length")
        ]
        if "transfer-encoding" not in names:
            body = self.body.encode()
            return [
                "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode(),
                body,
            ]
        events = [
            chunk(event.encode() + b"\n\n")
            for event in self.body.split("\n\n")
            if event.strip()
        ]
        return [
            "\r\n".join([*lines, "", ""]).encode(),
            *events,
            *([END] if self.whole else []),
        ]


def timed(name: str) -> Capture:
    """A stream whose lines have their times."""
    lines = [
        match[1] for match in map(_TIMED.fullmatch, _read(name).splitlines()) if match
    ]
    first = next(index for index, line in enumerate(lines) if line.startswith("data:"))
    events = [line for line in lines[first:] if line.startswith("data:")]
    return Capture(
        lines[:first], "\n\n".join(events) + "\n\n", lines[-1] == "[curl exit 0]"
    )


def titled(name: str) -> dict[str, Capture]:
    """Answers by their title."""
    found = {}
    for part in re.split(r"^##### ", _read(name), flags=re.MULTILINE)[1:]:
        title, _, rest = part.partition("\n")
        if capture := _answer(rest):
            found[title] = capture
    return found


def single(name: str) -> Capture:
    """A file that is one answer."""
    capture = _answer(_read(name))
    assert capture is not None
    return capture


def errors(name: str) -> dict[str, tuple[int, bytes]]:
    """Status and body by title."""
    parts = re.findall(
        r"^### (.*)\n((?:.*\n)*?)\[http (\d+)", _read(name), flags=re.MULTILINE
    )
    return {title: (int(status), body.encode()) for title, body, status in parts}


def _answer(text: str) -> Capture | None:
    match = re.search(r"^(HTTP/1\.1 (?:.+\n)+)\n((?:.*\n)*)", text, flags=re.MULTILINE)
    if match is None:
        return None
    body, _, ending = match[2].partition("\n# curl exit=")
    return Capture(
        match[1].splitlines(),
        re.sub(r"^\.\.\. .*\n", "", body, flags=re.MULTILINE),
        not ending.startswith("18"),
    )


def _read(name: str) -> str:
    return (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
