"""Entries of a data file (a JSON list or JSON Lines, of any size) and the turns of a
conversation."""

from __future__ import annotations

import hashlib
import json
import mmap
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from llama_load.ground.errors import UsageError
from llama_load.loadgen.workloads.text_files import read_whole
from llama_load.outside.foreign_files import TooLarge, open_foreign
from llama_load.outside.foreign_json import TooDeep, check_json, memory_bytes
from llama_load.servers.prompt import Message

T = TypeVar("T")

USER = "user"
ASSISTANT = "assistant"
SYSTEM = "system"
BLANK_LINE = "\n\n"
# What comes through a pipe is held in memory.
MOST_PIPE_BYTES = 1024 * 2**20
# On disk: it is read once for its hash.
MOST_DATA_BYTES = 64 * 2**30
# In UTF-16 or UTF-32: it is converted in memory.
MOST_CONVERTED_BYTES = 256 * 2**20
# The place of each is kept, which takes up to 200 bytes.
MOST_ENTRIES = 5_000_000
PIECE_BYTES = 16 * 2**20
_BOM = b"\xef\xbb\xbf"
_INK = re.compile(rb"\S")
_BEGINS_OF_JSON = (b"{", b"[")
# A string that never ends is one match, up to the end: looking for its end from each of its quotes
# would take quadratic time.
_STRING_OR_BRACKET = re.compile(
    rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL
)
_TOOL_ROLES = {
    "tool",
    "function",
    "function_call",
    "observation",
    "tool_call",
    "tool_response",
}
ROLES_OF_SPEAKERS = {
    "human": USER,
    "user": USER,
    "gpt": ASSISTANT,
    "chatgpt": ASSISTANT,
    "assistant": ASSISTANT,
    "bing": ASSISTANT,
    "bard": ASSISTANT,
    "model": ASSISTANT,
    "system": SYSTEM,
}


class DataFile:
    """The entries of a file, in order: the items of a JSON list, one object alone, or one entry per
    line.

    Keeps only their positions and decodes an entry on access: a 500 MB file costs a few megabytes
    besides its pages in the system's cache. `sha256` is the file's.
    """

    def __init__(
        self,
        path: Path,
        layout: str,
        what: str = "data set",
        flag: str = "--dataset-path",
    ) -> None:
        """`layout` completes the message "this is JSON, but not …", `what` says what it is, and
        `flag` gives it. UsageError: the file is missing, empty or not JSON."""
        self._path: Path | str = path
        self._layout = layout
        whole = _mapped(path, what, flag)
        self._what = "line"
        self._lines: array[int] | None = None
        self._entries: Sequence[msgspec.Raw | memoryview] = []
        try:
            self._read(whole)
        except (TooLarge, UsageError) as error:
            raise UsageError(f"the {what} {path} cannot be read: {error}") from None
        except (ValueError, RecursionError, msgspec.DecodeError) as error:
            raise UsageError(
                f"the {what} {path} is not valid JSON in UTF-8: {error}"
            ) from None
        # Last: what is refused by its size is not read to its end.
        self.sha256: str | UnsetType = hashlib.sha256(whole).hexdigest()

    @classmethod
    def of_rows(
        cls, rows: Iterable[Mapping[str, Any]], name: str, layout: str
    ) -> DataFile:
        """The rows of a data set that is no file. UsageError: there are too many bytes of them."""
        from llama_load.loadgen.workloads.file_forms import lines_of_rows

        file = object.__new__(cls)
        file._path = name
        file._layout = layout
        file.sha256 = UNSET
        try:
            table = lines_of_rows(rows)
        except TooLarge as error:
            raise UsageError(f"the data set {name} cannot be read: {error}") from None
        file._lines = table.numbers
        file._what = table.what
        _, file._entries = _lines(table.data, 0)
        return file

    def _read(self, whole: mmap.mmap | bytes) -> None:
        if whole[:1] not in _BEGINS_OF_JSON:
            from llama_load.loadgen.workloads.file_forms import json_lines, unpacked

            whole = unpacked(whole)
            table = json_lines(whole, Path(self._path))
            if table is not None:
                self._lines = table.numbers
                self._what = table.what
                _, self._entries = _lines(table.data, 0)
                return
        data, start = _in_utf8(whole)
        first = _INK.search(data, start)
        if first is None:
            raise UsageError(f"it is empty; each line must be {self._layout}")
        if first.group() == b"[" and not _begins_with_line(data, first.start()):
            self._entries = _list_items(memoryview(data)[start:])
        else:
            self._lines, self._entries = _lines(data, start)

    def __len__(self) -> int:
        return len(self._entries)

    def where(self, place: int) -> str:
        """The entry's name in messages: `line 7 of chats.jsonl`, `entry 7 of chats.json`."""
        return (
            f"entry {place + 1} of {self._path}"
            if self._lines is None
            else f"{self._what} {self._lines[place]} of {self._path}"
        )

    def memory_bytes(self, place: int) -> int:
        """What an entry takes in memory, decoded, about."""
        return memory_bytes(bytes(self._entries[place]))

    def decoded(self, decoder: msgspec.json.Decoder[T]) -> Iterator[tuple[T, str]]:
        """All entries with their names in messages. UsageError: see `decode`."""
        return (
            (self.decode(place, decoder), self.where(place))
            for place in range(len(self))
        )

    def decode(self, place: int, decoder: msgspec.json.Decoder[T]) -> T:
        """The entry at a position, 0 … len-1. UsageError names an entry that is broken or has
        another layout."""
        entry: Any = self._entries[place]
        begin = bytes(memoryview(entry)[:64])
        if begin.lstrip().startswith(b"["):  # the messages of a conversation
            entry = b'{"messages":' + bytes(entry) + b"}"
        try:
            try:
                check_json(entry)
                return decoder.decode(entry)
            except msgspec.ValidationError:
                raise
            except msgspec.DecodeError:
                # Half an emoji (an escaped lone surrogate) is invalid Unicode, but Python's json
                # and vLLM accept it; dumps have it.
                text = json.dumps(json.loads(bytes(entry)), ensure_ascii=False)
                return decoder.decode(text.encode("utf-8", "replace"))
        except msgspec.ValidationError as error:
            raise UsageError(
                f"{self.where(place)} is JSON, but not {self._layout}: {error}"
            ) from None
        except TooDeep as error:
            raise UsageError(f"{self.where(place)} cannot be read: {error}") from None
        except (ValueError, RecursionError, msgspec.DecodeError) as error:
            raise UsageError(
                f"{self.where(place)} is not valid JSON in UTF-8: {error}; it must be "
                f"{self._layout}"
            ) from None


def _mapped(path: Path, what: str, flag: str) -> mmap.mmap | bytes:
    if path.is_file() and (size := path.stat().st_size) > MOST_DATA_BYTES:
        raise UsageError(
            f"the {what} {path} has {size >> 30:,} GiB, over the limit of "
            f"{MOST_DATA_BYTES >> 30} GiB"
        )
    with suppress(ValueError, OSError):  # an empty file cannot be mapped
        if path.is_file():
            with open_foreign(path, MOST_DATA_BYTES) as file:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    missing = f"; give the path of a file with {flag}"
    return read_whole(
        path, what, MOST_PIPE_BYTES, missing=missing, too_large="; save it as a file"
    )


def _in_utf8(data: mmap.mmap | bytes) -> tuple[mmap.mmap | bytes, int]:
    """The data as UTF-8, and its start after a byte order mark. Windows also writes UTF-16."""
    encoding = json.detect_encoding(data[:4])
    if not encoding.startswith("utf-8"):
        if len(data) > MOST_CONVERTED_BYTES:
            raise TooLarge(
                f"files in {encoding.upper()} are read up to {MOST_CONVERTED_BYTES >> 20} MiB; "
                "save it as UTF-8"
            )
        data = data[:].decode(encoding).encode()
    return data, len(_BOM) if data[:3] == _BOM else 0


def _list_items(data: memoryview) -> Sequence[msgspec.Raw | memoryview]:
    if _commas(data) >= MOST_ENTRIES:  # in texts, too; or there are too many entries
        counted = _items_by_brackets(data)
        if counted is None:
            raise TooLarge(
                f"it has more than {MOST_ENTRIES:,} entries that are no objects, or is not valid "
                "JSON"
            )
        return counted
    try:
        return msgspec.json.decode(data, type=list[msgspec.Raw])
    except msgspec.DecodeError as error:
        # msgspec, ten times as fast, also fails on a lone surrogate (see `DataFile.decode`).
        if (items := _items_by_brackets(data)) is None:
            raise error from None
        return items


def _commas(data: memoryview) -> int:
    """How many there are, texts included."""
    pieces = range(0, len(data), PIECE_BYTES)
    return sum(bytes(data[start : start + PIECE_BYTES]).count(b",") for start in pieces)


def _check_count(entries: int) -> None:
    """Raises TooLarge."""
    if entries >= MOST_ENTRIES:
        raise TooLarge(f"it has more than {MOST_ENTRIES:,} entries")


def _items_by_brackets(data: memoryview) -> list[memoryview] | None:
    """The objects of a JSON list, without decoding their strings; None if it is not a list of
    objects."""
    items: list[memoryview] = []
    depth = start = end = 0
    for match in _STRING_OR_BRACKET.finditer(data):
        mark = data[match.start()]
        if mark in b"[{":
            depth += 1
            if depth == 2:
                _check_count(len(items))
                start = match.start()
                if bytes(data[end:start]).strip() != (b"," if items else b"["):
                    return None
        elif mark in b"]}":
            depth -= 1
            if depth == 1:
                end = match.end()
                items.append(data[start:end])
            elif depth == 0:
                closed = bytes(data[end : match.end()]).strip() == b"]"
                return (
                    items if closed and not bytes(data[match.end() :]).strip() else None
                )
    return None


def _lines(data: mmap.mmap | bytes, start: int) -> tuple[array[int], list[memoryview]]:
    """The non-blank lines, and their numbers from 1; an object over several lines is one."""
    view = memoryview(data)
    with suppress(ValueError, RecursionError, msgspec.DecodeError):
        msgspec.json.decode(view[start:], type=dict[str, msgspec.Raw])
        return array("Q", [1]), [view[start:]]
    numbers = array("Q")
    lines = []
    number = 0
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        number += 1
        if _INK.search(data, start, end):
            _check_count(len(numbers))
            numbers.append(number)
            lines.append(view[start:end])
        start = end + 1
    return numbers, lines


def _begins_with_line(data: mmap.mmap | bytes, start: int) -> bool:
    """Whether the first line is a list by itself, and another one follows it."""
    end = data.find(b"\n", start)
    following = _INK.search(data, end) if end >= 0 else None
    if following is None or following.group() != b"[":
        return False
    try:
        msgspec.json.decode(data[start:end], type=list[msgspec.Raw])
    except (ValueError, RecursionError, msgspec.DecodeError):
        return False
    return True


class Part(msgspec.Struct):
    """A part of a message's content; parts other than text (images) have no text."""

    text: str | None = None


class Turn(msgspec.Struct, rename={"speaker": "from"}):
    """One turn of a conversation: ShareGPT's `from` and `value`, or OpenAI's `role` and
    `content`."""

    speaker: str | None = None
    value: str | None = None
    role: str | None = None
    content: str | list[Part] | None = None
    tool_calls: Any = None

    @property
    def uses_tools(self) -> bool:
        """Whether it calls a tool, or is the result of one."""
        return (
            bool(self.tool_calls)
            or (self.role or self.speaker or "").lower() in _TOOL_ROLES
        )

    @property
    def text(self) -> str:
        """The text, "" if there is none; text parts are joined by line breaks."""
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content if part.text)
        return self.value or self.content or ""


def messages(turns: Iterable[Turn]) -> list[Message]:
    """The turns that have text, as system, user and assistant messages.

    An unknown or missing speaker counts as the one who did not speak last.
    """
    spoken: list[Message] = []
    last = ASSISTANT
    for turn in turns:
        role = ROLES_OF_SPEAKERS.get((turn.role or turn.speaker or "").lower()) or (
            USER if last == ASSISTANT else ASSISTANT
        )
        last = last if role == SYSTEM else role
        if turn.text.strip():
            spoken.append(Message(role, turn.text))
    return spoken


def alternating(spoken: Iterable[Message]) -> Iterator[Message]:
    """The messages, with consecutive ones of the same role joined by a blank line."""
    role = ""
    texts = list[str]()
    for message in spoken:
        if message.role != role and texts:
            yield Message(role, BLANK_LINE.join(texts))
            texts = []
        role = message.role
        texts.append(message.text)
    if texts:
        yield Message(role, BLANK_LINE.join(texts))


def joined(*texts: str | None) -> str | None:
    """The non-empty texts joined by a blank line; None if there is none."""
    return BLANK_LINE.join(text for text in texts if text) or None
