"""Reads of one answer that are kept as bytes and arrival times, to be understood many at a time.

Understanding a read when it arrives costs more than receiving it, because each time other code and
data have to come back into the processor's caches, while other sockets wait. Nothing of a stream is
needed before its end, as long as each read keeps its time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

# Memory of a slab: at most 64 KiB a stream, the last read included. With this much it takes its
# turn to be understood: 150 tokens, 0.2 ms of work. With SPARE_BYTES more it cannot wait, because
# reads arrive faster than they are understood.
MOST_BYTES: Final = 40 * 1024
SPARE_BYTES: Final = 7 * 1024
# A slab with fewer reads is understood at once when the answer may be over; a larger one takes its
# turn.
FEW_READS: Final = 16
# `data: ` and the blank line around an event's data.
EVENT_FRAME_BYTES: Final = 8
# A stream that has been silent for this long may have had its final event: its slab is understood.
SILENT_NS: Final = 300_000_000
# What a read takes beside its bytes: the headers of the objects `bytes` and `int`, and their places
# in two lists.
READ_OVERHEAD_BYTES: Final = 100
# A read of a stream that is kept has fewer bytes, or more are waiting.
KEPT_READ_BYTES: Final = 16 * 1024
# Shorter reads may be the end of an answer or a piece of one.
LEAST_READ_BYTES: Final = 32
# A blank line ends the event, CRLF its chunk: nothing is left over, and the answer's end is not
# among it.
WHOLE_EVENT_END: Final = b"\n\n\r\n"
WHOLE_EVENTS_END: Final = (
    WHOLE_EVENT_END,
    b"\r\n\r\n\r\n",
)  # also with CRLF at the ends of lines

# The longest read that `one_event` knows; vLLM's events with usage have 300 bytes, with log
# probabilities 1500.
_LONGEST: Final = 4096


def _beginning(length: int) -> bytes | None:
    """How a read of this length begins if it is one chunk of one event; None if no chunk makes that
    length."""
    for digits in range(1, 4):
        size = length - digits - 4  # two times CRLF
        if size > 0 and len(f"{size:x}") == digits:
            return b"%x\r\ndata: " % size
    return None


_BEGINNINGS: Final = tuple(_beginning(length) for length in range(_LONGEST + 1))


class Slab:
    """The reads and their arrival times. `room`: how much more memory they may take. `plain`: what
    came before were whole chunks of whole events; `queued`: it takes its turn to be understood."""

    __slots__ = ("plain", "queued", "reads", "room", "stamps")

    def __init__(self) -> None:
        self.reads: list[bytes] = []
        self.stamps: list[int] = []
        self.room = MOST_BYTES
        self.plain = False
        self.queued = False

    def keep(self, data: bytes, at: int) -> None:
        """Add a read. (`ReadLoop` does the same.)"""
        self.reads.append(data)
        self.stamps.append(at)
        self.room -= len(data) + READ_OVERHEAD_BYTES

    def extend(self, reads: Sequence[bytes], stamps: Sequence[int]) -> None:
        """Add reads of whole events."""
        self.reads.extend(reads)
        self.stamps.extend(stamps)
        self.room -= sum(map(len, reads)) + len(reads) * READ_OVERHEAD_BYTES

    def put_back(self, rest: Iterable[tuple[bytes, int]]) -> int:
        """Keep the last of the reads that it was emptied of; how many."""
        for data, at in rest:
            self.keep(data, at)
        return len(self.reads)

    @property
    def is_too_full(self) -> bool:
        """Whether it cannot wait for its turn."""
        return self.room <= -SPARE_BYTES

    def emptied(self) -> tuple[list[bytes], list[int]]:
        """The reads and their times, which are then no longer here."""
        reads = self.reads.copy()
        stamps = self.stamps.copy()
        self.reads.clear()
        self.stamps.clear()
        self.room = MOST_BYTES
        return reads, stamps


def one_event(data: bytes) -> bytes | None:
    """The data of the event, if this read is exactly one chunk with one event of one line `data:
    …`; else None.

    The chunk's size must be in lower case and without leading zeros.

    Nearly all reads of llama-server and vLLM are. This takes a tenth of the time of an HTTP parser
    and a decoder of events.
    """
    length = len(data)
    beginning = _BEGINNINGS[length] if length <= _LONGEST else None
    if (
        beginning is not None
        and data.startswith(beginning)
        and data.endswith(WHOLE_EVENT_END)
        # Between the beginning, whose line end is within 5 bytes, and the end there is no other
        # line end.
        and data.find(b"\n", 5) == length - 4
        and data.find(b"\r", 5) == length - 2
    ):
        return data[len(beginning) : -4]
    return None
