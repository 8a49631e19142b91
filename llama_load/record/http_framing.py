"""Where the messages of HTTP/1.1 begin and end in a stream of bytes that is passed on unchanged.

Every part keeps its bytes as they came. What could be read in two ways (two lengths, a length and
chunks) is refused. Source: RFC 9112, sections 2 to 7.
"""

from __future__ import annotations

import enum
import re
from collections import deque
from dataclasses import dataclass

MOST_HEAD_BYTES = 64 << 10
# A line with a chunk's size; RFC 9112 wants extensions to be bounded.
MOST_SIZE_LINE_BYTES = 4 << 10
# Between chunks, in one step: a millisecond. Chunks of one byte are 40,000 in a read.
MOST_LINES = 1000
_END_OF_HEAD = b"\r\n\r\n"
_REQUEST_LINE = re.compile(rb"[!-~]{1,32} [!-~]+ HTTP/1\.[01]")
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] [1-5][0-9]{2}(?: [^\r\n]*)?")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}):([^\r\n\x00]*)")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?")


class BadMessageError(ValueError):
    """These bytes are no HTTP message, or one that could be read in two ways."""


class HeadTooLargeError(BadMessageError):
    """A head has more than `MOST_HEAD_BYTES`."""


@dataclass(frozen=True, slots=True)
class Head:
    """The first line and the fields of a message. Names are in lower case."""

    raw: bytes
    first_line: bytes
    fields: tuple[tuple[bytes, bytes], ...]

    def values(self, name: bytes) -> list[bytes]:
        """The values of all fields of this name, in their order."""
        return [value for field, value in self.fields if field == name]

    def text(self, name: bytes) -> str:
        """The value of the first field of this name; "" without one."""
        found = self.values(name)
        return found[0].decode("latin-1") if found else ""

    @property
    def method(self) -> str:
        """Of a request."""
        return self.first_line.split(b" ")[0].decode("ascii")

    @property
    def path(self) -> str:
        """Of a request, without its query, which may hold a key."""
        target = self.first_line.split(b" ")[1].decode("ascii")
        return target.partition("?")[0]

    @property
    def status(self) -> int:
        """Of an answer."""
        return int(self.first_line[9:12])


@dataclass(frozen=True, slots=True)
class Body:
    """Some bytes of a body as they came, and what they are without the frames of chunks."""

    raw: bytes
    data: bytes


@dataclass(frozen=True, slots=True)
class End:
    """The end of a message."""


Part = Head | Body | End


class _State(enum.Enum):
    HEAD = enum.auto()
    LENGTH = enum.auto()
    UNTIL_CLOSE = enum.auto()
    CHUNK_SIZE = enum.auto()
    CHUNK_DATA = enum.auto()
    CHUNK_END = enum.auto()
    TRAILERS = enum.auto()


class MessageReader:
    """Cuts one direction of a connection into messages."""

    def __init__(self, *, reads_answers: bool, drops_additions: bool = False) -> None:
        """`drops_additions`: parts have no trailers and no extensions of chunks, which nobody has
        to pass on (RFC 9110, section 6.5.1; RFC 9112, section 7.1.1)."""
        self._reads_answers = reads_answers
        self._drops_additions = drops_additions
        self._state = _State.HEAD
        self._head = bytearray()
        self._lines_left = 0  # between chunks, in this step
        self._left = 0  # bytes of a body or a chunk that are still to come
        self._line = bytearray()  # of a chunk's size, of the trailers
        self._trailer_bytes = 0
        self._frame = b""  # what the last line between chunks needs to be
        # Of the requests that are not answered yet: whether their answers have no body (HEAD).
        self.without_body: deque[bool] = deque()

    @property
    def is_between(self) -> bool:
        """Whether no message has begun that has not ended."""
        return self._state is _State.HEAD and not self._head

    @property
    def is_in_head(self) -> bool:
        """Whether a head has begun and not ended."""
        return self._state is _State.HEAD and bool(self._head)

    def feed(self, data: bytes) -> list[Part]:
        """The parts that these bytes complete. Raises BadMessageError."""
        parts: list[Part] = []
        while data:
            more, data = self.step(data)
            parts += more
        return parts

    def step(self, data: bytes) -> tuple[list[Part], bytes]:
        """The parts up to the end of a message, or of `MOST_LINES` between its chunks; and what is
        left of these bytes. Raises BadMessageError."""
        parts: list[Part] = []
        self._lines_left = MOST_LINES
        at = 0
        while at < len(data) and self._lines_left:
            if self._state is _State.HEAD:
                at = self._read_head(data, at, parts)
            elif self._state is _State.UNTIL_CLOSE:
                rest = data[at:]
                parts.append(Body(rest, rest))
                at = len(data)
            elif self._state is _State.LENGTH:
                at = self._read_length(data, at, parts)
            else:
                at = self._read_chunks(data, at, parts)
            if parts and isinstance(parts[-1], End):
                break
        return parts, data[at:]

    def end_completes_a_message(self) -> bool:
        """Whether the end of the connection is the end of a message."""
        return self._state is _State.UNTIL_CLOSE

    # ------------------------------------------------------------------ heads

    def _read_head(self, data: bytes, at: int, parts: list[Part]) -> int:
        """Returns the place behind what was read, as all of these do."""
        if self._head:
            # its end may have begun in what came before
            searched = max(0, len(self._head) - len(_END_OF_HEAD) + 1)
            before = len(self._head)
            self._head += data[at : at + MOST_HEAD_BYTES]
            found = self._head.find(_END_OF_HEAD, searched)
            size = found + len(_END_OF_HEAD)
            raw = bytes(self._head[:size])
            end = at + size - before
        else:
            found = data.find(_END_OF_HEAD, at)
            end = found + len(_END_OF_HEAD)
            size = end - at
            raw = data[at:end]
        if found < 0:
            if not self._head:
                self._head += data[at:]
            if len(self._head) > MOST_HEAD_BYTES:
                raise HeadTooLargeError("its head is too long")
            return len(data)
        if size > MOST_HEAD_BYTES:
            raise HeadTooLargeError("its head is too long")

        self._head.clear()
        head = self._parsed(raw)
        parts.append(head)
        self._begin_body(head)
        if self._state is _State.HEAD:
            parts.append(End())
        return end

    def _parsed(self, raw: bytes) -> Head:
        lines = raw.removesuffix(_END_OF_HEAD).split(b"\r\n")
        first_line = lines[0]
        pattern = _STATUS_LINE if self._reads_answers else _REQUEST_LINE
        if not pattern.fullmatch(first_line):
            raise BadMessageError("its first line is not one of HTTP/1.1")
        fields = []
        for line in lines[1:]:
            field = _FIELD.fullmatch(line)
            if field is None:
                raise BadMessageError("a line of its head is no field")
            fields.append((field[1].lower(), field[2].strip(b" \t")))
        return Head(raw, first_line, tuple(fields))

    def _begin_body(self, head: Head) -> None:
        lengths = set(head.values(b"content-length"))
        codings = head.values(b"transfer-encoding")  # one that is empty, too
        if len(lengths) > 1 or (lengths and codings):
            raise BadMessageError("it has two lengths")
        if self._reads_answers and self._is_without_body(head):
            self._state = _State.HEAD
        elif codings:
            if b",".join(codings).lower().strip(b" \t") != b"chunked":
                raise BadMessageError("its transfer coding is not chunked")
            self._state = _State.CHUNK_SIZE
        elif lengths:
            length = lengths.pop()
            if not length.isdigit() or len(length) > 15:
                raise BadMessageError("its length is no number")
            self._left = int(length)
            self._state = _State.LENGTH if self._left else _State.HEAD
        elif self._reads_answers:
            self._state = _State.UNTIL_CLOSE

    def _is_without_body(self, head: Head) -> bool:
        if head.status < 200:
            return True
        is_to_head = self.without_body.popleft() if self.without_body else False
        return is_to_head or head.status in (204, 304)

    # ------------------------------------------------------------------ bodies

    def _read_length(self, data: bytes, at: int, parts: list[Part]) -> int:
        piece = data[at : at + self._left]
        self._left -= len(piece)
        parts.append(Body(piece, piece))
        if not self._left:
            self._state = _State.HEAD
            parts.append(End())
        return at + len(piece)

    def _read_chunks(self, data: bytes, at: int, parts: list[Part]) -> int:
        """All chunks in these bytes are one part, so that what came together is sent together."""
        content = []
        plain = []  # with the frames alone
        begin = at
        while at < len(data) and self._lines_left and self._state is not _State.HEAD:
            if self._state is _State.CHUNK_DATA:
                piece = data[at : at + self._left]
                content.append(piece)
                plain.append(piece)
                self._left -= len(piece)
                at += len(piece)
                if not self._left:
                    self._state = _State.CHUNK_END
            else:
                at = self._read_line(data, at)
                plain.append(self._frame)
                self._lines_left -= 1
        raw = b"".join(plain) if self._drops_additions else data[begin:at]
        parts.append(Body(raw, b"".join(content)))
        if self._state is _State.HEAD:
            parts.append(End())
        return at

    def _read_line(self, data: bytes, at: int) -> int:
        """Read one line of the framing, or the beginning of one; returns the place behind it."""
        self._frame = b""
        end = data.find(b"\n", at)
        stop = len(data) if end < 0 else end + 1
        self._line += data[at:stop]
        if len(self._line) > MOST_SIZE_LINE_BYTES:
            raise BadMessageError("a line between its chunks is too long")
        if end < 0:
            return stop
        if not self._line.endswith(b"\r\n"):
            raise BadMessageError("a line between its chunks has no end")
        line = bytes(self._line[:-2])
        self._line.clear()
        self._take_line(line)
        return stop

    def _take_line(self, line: bytes) -> None:
        if self._state is _State.CHUNK_END:
            if line:
                raise BadMessageError("a chunk is longer than its size")
            self._frame = b"\r\n"
            self._state = _State.CHUNK_SIZE
        elif self._state is _State.CHUNK_SIZE:
            size = _SIZE.fullmatch(line)
            if size is None:
                raise BadMessageError("the size of a chunk is no number")
            self._left = int(size[1], 16)
            self._frame = size[1] + b"\r\n"
            self._trailer_bytes = 0
            self._state = _State.CHUNK_DATA if self._left else _State.TRAILERS
        elif not line:
            self._frame = b"\r\n"
            self._state = _State.HEAD
        else:
            self._trailer_bytes += len(line)
            if self._trailer_bytes > MOST_HEAD_BYTES:
                raise BadMessageError("its trailers are too long")
