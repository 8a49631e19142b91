"""Answers as servers of others send them: each file of `answers/` is one, with its public report, its bytes
and what is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from llama_load.servers.apis import APIS
from llama_load.servers.prompt import Prompt
from tests.answer_pipeline import record_of

CASES = sorted((Path(__file__).parent / "answers").glob("*.txt"))
LEAST_CASES = 60
# Of record columns, of which the tool calls are kept where tools were sent.
WITH_TOOLS = Prompt("text", fields={"tools": [{}]})


class Case:
    """One file: lines `name: value`, a blank line, and the body as it was sent."""

    def __init__(self, path: Path) -> None:
        head, _, self.body = path.read_text("utf-8").partition("\n\n")
        self.lines: dict[str, list[str]] = {}
        for line in head.split("\n"):
            name, _, value = line.partition(":")
            self.lines.setdefault(name, []).append(value.strip())

    def one(self, name: str, default: str = "") -> str:
        """The value of a line."""
        return self.lines.get(name, [default])[0]

    @property
    def right(self) -> dict[str, Any]:
        """Columns of the record."""
        return msgspec.json.decode(self.one("right"), type=dict[str, Any])

    def reads(self) -> list[bytes]:
        """The answer, each block of lines in a read of its own.

        `http`: "chunked", "length", "close": the connection ends the body; "cut": chunks, and the
        connection is closed before the last one.
        """
        framing = self.one("http", "chunked")
        blocks = [block.encode() for block in self.body.split("\n\n")]
        last = blocks.pop()
        blocks = [block + b"\n\n" for block in blocks]
        if last:
            blocks.append(last)

        head = f"HTTP/1.1 {self.one('status', '200')} Text\r\n"
        if content_type := self.one("type", "text/event-stream"):
            head += f"Content-Type: {content_type}\r\n"
        if framing == "length":
            head += f"Content-Length: {len(self.body.encode())}\r\n"
        if framing in ("chunked", "cut"):
            head += "Transfer-Encoding: chunked\r\n"
            blocks = [b"%x\r\n%b\r\n" % (len(block), block) for block in blocks]
        if framing == "chunked":
            blocks.append(b"0\r\n\r\n")
        return [head.encode() + b"\r\n", *blocks]


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_an_answer_of_the_wild_is_read_right(path: Path) -> None:
    case = Case(path)
    api = case.one("api", "chat")
    record = record_of(
        case.reads(), APIS[api].reader(), endpoint=api, prompt=WITH_TOOLS
    )
    found = {name: getattr(record, name) for name in case.right}
    for name, value in found.items():
        if isinstance(case.right[name], list):
            found[name] = list(value)
    assert found == case.right, record.error
    for words in case.lines.get("words", []):
        assert words in (record.error or "")
    if "note" in case.lines:
        assert (record.end_note or "") == case.one("note")


def test_the_cases_are_many_and_each_has_its_report() -> None:
    assert len(CASES) >= LEAST_CASES
    for path in CASES:
        assert Case(path).one("source").startswith("https://"), path.stem
        assert Case(path).one("what"), path.stem
