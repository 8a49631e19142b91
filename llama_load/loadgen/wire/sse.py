"""Incremental decoder of server-sent events, for bytes split at any place.

Follows the WHATWG rules
(https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream): lines end
in LF, CR or CRLF, `data` fields of one event are joined by LF, comments and other fields are
ignored, a blank line ends the event. Two exceptions: data lines at the end of a *complete* body
count without a blank line, because line-based clients accept them; and a line that is a JSON object
is an event, because servers write their errors so.

What servers say beside the events is kept: the data of an event named `error`, the value of a field
of that name, and lines that are no field at all.
"""

from __future__ import annotations

import re

# Far above any event of an LLM server; bounds memory against endless lines.
MAX_EVENT_BYTES = 4 * 1024 * 1024

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"
_LF = 0x0A
_IGNORED = (b":", b"id:", b"retry:")
# Of lines that are no field; the first ones show what is sent.
MOST_OTHER_BYTES = 4096
# How a stream of events begins, whatever its content type.
_BEGINNINGS = (b"data:", b"event:", b"id:", b"retry:", b": ", b":\n")
LONGEST_BEGINNING = max(map(len, _BEGINNINGS))


def begins_events(body: bytes) -> bool:
    """Whether a body that begins so is a stream of events."""
    return body.removeprefix(_BOM).lstrip().startswith(_BEGINNINGS)


class EventTooLarge(Exception):
    """A line or an event grew beyond MAX_EVENT_BYTES."""

    def __init__(self) -> None:
        super().__init__(
            f"an event of the stream grew beyond {MAX_EVENT_BYTES >> 20} MiB without ending"
        )


class EventStream:
    """Incremental decoder. `feed` returns the data of every event completed by these bytes."""

    __slots__ = (
        "_at_start",
        "_between",
        "_data",
        "_data_bytes",
        "_name",
        "_skip_lf",
        "_tail",
        "_tail_pieces",
        "error",
        "other",
    )

    def __init__(self) -> None:
        self._tail = b""  # the beginning of a line that has not ended yet
        # and how it goes on: appended to, since copying it with each byte would take quadratic time
        self._tail_pieces = bytearray()
        self._data: list[bytes] = []  # data lines of an event that has not ended yet
        self._data_bytes = 0
        self._name = b""  # the line with the name of that event
        # what an event or a field named error said last
        self.error = b""
        self.other = bytearray()  # lines that are no field
        # the last line ended in CR: a LF that follows belongs to it
        self._skip_lf = False
        self._at_start = True
        # all bytes so far were whole events: nothing of the above is set
        self._between = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Events completed by `chunk`, oldest first; each is the event's data, lines joined by
        LF."""
        # The hot path: one whole event of one line, ended by LF.
        one_line = (
            self._between
            and chunk[:6] == b"data: "
            and chunk.find(b"\n") == len(chunk) - 2
        )
        if one_line and chunk[-1] == _LF and b"\r" not in chunk:
            return [chunk[6:-2]]
        if (
            self._tail
            and not self._at_start
            and b"\n" not in chunk
            and b"\r" not in chunk
        ):
            self._tail_pieces += chunk
            if len(self._tail) + len(self._tail_pieces) > MAX_EVENT_BYTES:
                raise EventTooLarge
            return []
        events = self._feed_slowly(chunk)
        self._between = not (
            self._tail or self._data or self._skip_lf or self._at_start
        )
        return events

    @property
    def between(self) -> bool:
        """Whether all bytes so far were whole events."""
        return self._between

    def end(self) -> list[bytes]:
        """The body is complete: the last event, if it has data without a blank line."""
        lines = [self._whole_tail()] if self._tail else []
        self._tail = b""
        return self._lines([*lines, b""])

    def _whole_tail(self) -> bytes:
        tail = self._tail + self._tail_pieces
        self._tail_pieces.clear()
        return tail

    def _feed_slowly(self, chunk: bytes) -> list[bytes]:
        if self._skip_lf and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._skip_lf = False
        text = self._whole_tail() + chunk
        if self._at_start:
            if len(text) < len(_BOM) and _BOM.startswith(text):
                self._tail = text
                return []
            self._at_start = False
            text = text.removeprefix(_BOM)
        if text.endswith(b"\r"):
            self._skip_lf = True
        if b"\n" in chunk or b"\r" in chunk:
            *lines, self._tail = _LINE_END.split(text)
        else:  # no line ended; searching its beginning again each time would take quadratic time
            lines = []
            self._tail = text
        if len(self._tail) > MAX_EVENT_BYTES:
            raise EventTooLarge
        return self._lines(lines)

    def _lines(self, lines: list[bytes]) -> list[bytes]:
        events = []
        for line in lines:
            if not line:
                if self._data:
                    events.append(self._ended_event())
                self._name = b""
            elif line == b"data" or line.startswith(b"data:"):
                data = line[6:] if line[5:6] == b" " else line[5:]
                self._data.append(data)
                self._data_bytes += len(line)
                if self._data_bytes > MAX_EVENT_BYTES:
                    raise EventTooLarge
            elif line.startswith(b"event:"):
                self._name = line
            elif line[:1] == b"{" and line.endswith(b"}"):
                events.append(line)
            else:
                self._take_field(line)
        return events

    def _ended_event(self) -> bytes:
        data = b"\n".join(self._data)
        self._data = []
        self._data_bytes = 0
        if self._name.rstrip().endswith(b"error"):
            self.error = data
        return data

    def _take_field(self, line: bytes) -> None:
        """A line of another field: an error, what is ignored, or no field."""
        if line.startswith(b"error:"):
            self.error = line[6:].strip()
        elif not line.startswith(_IGNORED) and len(self.other) < MOST_OTHER_BYTES:
            self.other += line[:MOST_OTHER_BYTES] + b"\n"
