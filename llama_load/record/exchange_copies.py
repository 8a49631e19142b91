"""Copies of what a relay has passed on, and the pipe by which they go to the recording process.

Memory is bounded: a copy that is too large, or one too many, is given up, and what passes is not
held up by it.
"""

from __future__ import annotations

import os
import selectors
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field

from llama_load.record.exchange_keys import keys_of_head
from llama_load.record.http_framing import Head
from llama_load.record.passed_exchange import PassedExchange, encoded

# Larger bodies pass as all others do, and are not recorded. A prompt of a million tokens has 5 MiB.
MOST_BODY_BYTES = 64 << 20
# Of all copies, those on their way to the recording process included.
MOST_KEPT_BYTES = 256 << 20
# What a piece takes beside its bytes, which may be one.
BYTES_OF_PIECE = 128
SINK_WRITE_BYTES = 64 << 10


@dataclass(slots=True)
class ExchangeCopy:
    """The copy of an exchange, while it goes on."""

    passed: PassedExchange
    body: list[bytes] = field(default_factory=list)
    body_bytes: int = 0
    bytes_kept: int = 0  # in memory
    request_delay_ms: float = 0.0
    answer_delay_ms: float = 0.0


class ExchangeCopies:
    """All copies of a relay. `count` were begun; `not_recorded` did not reach the recording
    process."""

    def __init__(self, sink: int, selector: selectors.BaseSelector) -> None:
        """`sink`: the descriptor of a pipe to the recording process. `selector`: of the relay's
        loop, which writes when the pipe takes more."""
        self.count = 0
        self.not_recorded = 0
        self._sink = sink
        os.set_blocking(sink, False)
        self._sink_is_open = True
        self._selector = selector
        self._unsent: deque[memoryview] = deque()
        self._kept_bytes = 0

    def begin(self, head: Head, came_ns: int, wall_minus_mono_ns: int) -> ExchangeCopy:
        """Of a request whose head came at this instant."""
        self.count += 1
        passed = PassedExchange(
            number=self.count,
            method=head.method,
            path=head.path,
            started_ns=came_ns,
            started_wall_ns=came_ns + wall_minus_mono_ns,
            ended_ns=came_ns,
            request_encoding=head.text(b"content-encoding"),
            secrets=keys_of_head(head),
        )
        return ExchangeCopy(passed)

    def keep_request(self, copy: ExchangeCopy, data: bytes) -> None:
        """A part of the request's body."""
        if data and self._may_keep(copy, data):
            copy.body.append(data)

    def keep_answer(self, copy: ExchangeCopy, data: bytes, came_ns: int) -> None:
        """A part of the answer's body."""
        if data and self._may_keep(copy, data):
            copy.passed.pieces.append((came_ns, data))

    def _may_keep(self, copy: ExchangeCopy, data: bytes) -> bool:
        passed = copy.passed
        if passed.not_kept:
            return False

        size = len(data) + BYTES_OF_PIECE
        if copy.body_bytes + len(data) > MOST_BODY_BYTES:
            passed.not_kept = f"larger than {MOST_BODY_BYTES >> 20} MiB"
        elif self._kept_bytes + size > MOST_KEPT_BYTES:
            passed.not_kept = "too much passed at the same time"
        if passed.not_kept:
            self._kept_bytes -= copy.bytes_kept
            copy.bytes_kept = 0
            copy.body.clear()
            passed.pieces.clear()
            return False

        copy.body_bytes += len(data)
        copy.bytes_kept += size
        self._kept_bytes += size
        return True

    def end(self, copy: ExchangeCopy, how: str) -> None:
        """Hand it over. `how`: complete, or who or what ended the exchange."""
        passed = copy.passed
        passed.end = how
        passed.request = b"".join(copy.body)
        passed.delay_ms = copy.request_delay_ms + copy.answer_delay_ms
        if how != "complete":
            passed.ended_ns = time.monotonic_ns()
        self._kept_bytes -= copy.bytes_kept
        self.hand_over(encoded(passed))

    def hand_over(self, message: bytes) -> None:
        """Queue a message for the recording process."""
        most_bytes = MOST_KEPT_BYTES + MOST_BODY_BYTES
        if not self._sink_is_open or self._kept_bytes + len(message) > most_bytes:
            self.not_recorded += 1
            return

        self._kept_bytes += len(message)
        self._unsent.append(memoryview(message))
        if self._sink not in self._selector.get_map():
            self._selector.register(
                self._sink, selectors.EVENT_WRITE, lambda _: self._write()
            )

    def write_all(self) -> None:
        """What is left, and wait for it."""
        if self._sink_is_open:
            os.set_blocking(self._sink, True)
            self._write()

    def _write(self) -> None:
        while self._unsent:
            message = self._unsent[0]
            try:
                sent = os.write(self._sink, message[:SINK_WRITE_BYTES])
            except BlockingIOError:
                return
            except OSError:  # the recording process has ended: traffic goes on
                self._sink_is_open = False
                self.not_recorded += len(self._unsent)
                self._unsent.clear()
                break
            self._kept_bytes -= sent
            if sent == len(message):
                self._unsent.popleft()
            else:
                self._unsent[0] = message[sent:]
            if not os.get_blocking(self._sink):
                return  # connections come first
        with suppress(KeyError, ValueError):
            self._selector.unregister(self._sink)
