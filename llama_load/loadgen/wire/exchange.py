"""One HTTP/1.1 request and its streamed answer.

    WAITING (no progress yet) ──► STREAMING (progress seen) ──► DONE

`Request.reuse` decides whether the connection is reused. If a reused one turns out to be closed
before a byte of the answer arrived, the request is sent again on a new one. If a new one is closed,
the request failed.

The beginning of an answer is understood read by read. Once it streams, reads that hold whole events
are kept in a `Slab` and understood many at a time: when the slab is full, when the answer may be
over, when a timeout is judged. Every event keeps the arrival time of its read, so the result is the
same.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from llama_load.ground.failure_kind import FailureKind
from llama_load.ground.units import NS_PER_S
from llama_load.loadgen.wire.answer_body import MAX_BODY_BYTES, AnswerBody
from llama_load.loadgen.wire.connection import OPENING
from llama_load.loadgen.wire.fair_queue import BUDGET_NS
from llama_load.loadgen.wire.phase_clock import DONE, STREAMING, PhaseClock
from llama_load.loadgen.wire.request import Request
from llama_load.loadgen.wire.response import Response
from llama_load.loadgen.wire.slab import (
    EVENT_FRAME_BYTES,
    FEW_READS,
    SILENT_NS,
    Slab,
    one_event,
)
from llama_load.loadgen.wire.sse import (
    LONGEST_BEGINNING,
    EventStream,
    EventTooLarge,
    begins_events,
)
from llama_load.loadgen.wire.stamps import Opening, ReadCounts, Stamps
from llama_load.servers.wire_failure import WireFailure

if TYPE_CHECKING:
    from gevent.hub import Waiter

    from llama_load.loadgen.wire.connection import Connection
    from llama_load.loadgen.wire.pool import ConnectionPool
    from llama_load.servers.address import Address

# Limit of an answer whose request does not limit its length: 250,000 tokens of 250 bytes. Each
# request in flight may take it.
MAX_ANSWER_BYTES = 64 * 1024 * 1024

# A parked connection that the server had closed fails at once. One that fails later has cost the
# server work: the request failed.
REOPEN_WITHIN_NS = 1_000_000_000

LF = 0x0A
NEVER_NS = 1 << 62
# Origin of the connection: opened for the request, reused, or opened because the reused one was
# closed.
FRESH, REUSED, REOPENED = range(3)


@dataclass(slots=True, eq=False)
class Exchange:
    """A request in flight, and afterwards its result.

    `failure` is None exactly when a complete answer of any status was received. `opening` is that
    of its connection, empty where one was reused.
    """

    pool: ConnectionPool
    address: Address
    request: Request
    clock: PhaseClock
    answer: AnswerBody
    waiter: Waiter
    on_done: Callable[[Exchange], None]  # called once, when it is over

    stamps: Stamps = field(default_factory=Stamps)
    counts: ReadCounts = field(default_factory=ReadCounts)
    opening: Opening = field(default_factory=Opening)
    origin: int = FRESH
    response: Response = field(default_factory=Response)
    failure: WireFailure | None = None
    # the body ended as HTTP has it
    has_body_end: bool = False
    cancelled: bool = False
    aborted: bool = False  # its user hung up, see `GiveUp`
    # the current one; None when the exchange is over
    connection: Connection | None = None
    slab: Slab | None = None  # once it streams, if reads may be kept
    hang_up_timer: Any = None  # of the event loop
    # no timeout passes before then, unless something arrives or is sent
    look_ns: int = 0
    # arrival time of the read of the slab that is being understood
    understood_ns: int | None = None

    @property
    def status(self) -> int | None:
        """The HTTP status, None if there was no answer."""
        return self.response.status

    @property
    def headers(self) -> dict[str, str]:
        """The answer's header fields, names in lower case."""
        return self.response.headers

    @property
    def body(self) -> bytearray:
        """The answer's body, unless it is a stream of events; of an error, its beginning."""
        return self.answer.data

    @property
    def is_stream(self) -> bool:
        """Whether its body was read as a stream of events."""
        return self.answer.events is not None

    @property
    def error_frame(self) -> bytes:
        """What an event or a field named error said in a stream; empty: nothing."""
        return b"" if self.answer.events is None else self.answer.events.error

    @property
    def other_lines(self) -> bytes:
        """The first lines of a stream that are no field of events."""
        return b"" if self.answer.events is None else bytes(self.answer.events.other)

    @property
    def reused(self) -> bool:
        """Whether no connection had to be opened."""
        return self.origin == REUSED

    @property
    def reopened(self) -> bool:
        """Whether the reused connection was closed, and a new one was opened."""
        return self.origin == REOPENED

    def wait(self) -> None:
        """Wait until the exchange is over (and for a turn in the fair queue). Must be called once,
        by one greenlet."""
        self.waiter.get()

    # ------------------------------------------------------------------ going out

    def start(self) -> None:
        """Connect if needed, and send, without blocking. Errors are put into `failure`, none is
        raised."""
        parked = self.pool.parked(self.address) if self.request.reuse else None
        if parked is None:
            self._send_on(self.pool.new(self.address), FRESH)
        else:
            self._send_on(parked, REUSED)

    def _send_on(self, connection: Connection, origin: int) -> None:
        self.connection = connection
        self.origin = origin
        connection.send(self, (self.request.head(self.address), *self.request.pieces))

    def on_start(self) -> None:
        """The connection is about to connect or, if it is open, to send: the clock starts, once per
        request."""
        now_ns = time.monotonic_ns()
        self.look_ns = 0
        self.stamps.attempt_ns = self.clock.since_ns = now_ns
        if not self.stamps.started_ns:
            self.stamps.started_ns = now_ns

    def on_sent(self, at: int) -> None:
        """The whole request is with the kernel."""
        self.look_ns = 0
        self.stamps.sent_ns = self.clock.since_ns = at

    def _reopen(self) -> None:
        """The reused connection was closed: send again on a new one."""
        self.stamps.sent_ns = self.stamps.first_write_ns = None
        assert self.connection is not None
        self.connection.close()
        self._send_on(self.pool.new(self.address), REOPENED)

    # ------------------------------------------------------------------ coming in

    def slab_is_full(self) -> None:
        """Understand it at its turn; at once, but not all of it, if reads arrive faster than it has
        one."""
        slab = self.slab
        if slab is None or slab.is_too_full:
            self.understand(BUDGET_NS)
        else:
            self._understand_later(slab)

    def take(self, data: bytes | memoryview, at: int) -> None:
        """Bytes of the answer were received at `at`; it may be over with them."""
        slab = self.slab
        if slab is not None and slab.reads:
            if len(slab.reads) >= FEW_READS and not slab.is_too_full:
                slab.keep(bytes(data), at)
                self.counts.reads -= 1  # which counts when it is understood
                self.pool.hold(self.connection)
                self._understand_later(slab)
                return
            self.understand()
            if self.clock.phase == DONE:
                self.counts.reads -= 1  # of an answer that is over
                return
        self._take(data, at)

    def understand_soon(self) -> None:
        """Understand the reads that are kept, if there are any, at its turn."""
        slab = self.slab
        if slab is not None and slab.reads:
            self._understand_later(slab)

    def _understand_later(self, slab: Slab) -> None:
        if not slab.queued:
            slab.queued = True
            self.pool.understand_later(self)

    def is_silent(self, at: int) -> bool:
        """Whether reads are kept that may have the final event: nothing has come since."""
        return (
            self.slab is not None
            and bool(self.slab.reads)
            and at - self.slab.stamps[-1] > SILENT_NS
        )

    def understand(self, budget_ns: int | None = None) -> None:
        """Understand the reads that are kept, in their order: all, or those that take little longer
        than `budget_ns`."""
        slab = self.slab
        if slab is None or self.answer.events is None or not slab.reads:
            return

        self.look_ns = 0
        reads, stamps = slab.emptied()
        total = sum(map(len, reads))
        self.counts.reads += len(reads)
        most = self.request.most_bytes or MAX_ANSWER_BYTES
        # None of these reads can be too late or too much, so that those of one event need no other
        # code than their reader.
        is_safe = self.counts.received_bytes + total <= most and not self.is_overdue(
            stamps[-1]
        )
        plain = is_safe and slab.plain
        read_event = self.answer.reader.event
        received = progress = last_ns = 0
        until_ns = None if budget_ns is None else time.monotonic_ns() + budget_ns
        kept = zip(reads, stamps, strict=True)
        for data, at in kept:
            if plain and (event := one_event(data)) is not None:
                received += len(event) + EVENT_FRAME_BYTES
                if read_event(event, at):
                    progress += 1
                    last_ns = at
                continue
            self._note_progress(received, progress, last_ns)
            received = progress = 0
            self.understood_ns = at
            self._take(data, at)
            if self.clock.phase == DONE:
                self.counts.reads -= sum(1 for _ in kept)  # of an answer that is over
                return
            plain = is_safe and slab.plain
            if until_ns is not None and time.monotonic_ns() > until_ns:
                self.counts.reads -= slab.put_back(kept)
        self.understood_ns = None
        self._note_progress(received, progress, last_ns)

    def _note_progress(self, received: int, progress: int, last_ns: int) -> None:
        """Reads of one event each: body bytes, tokens, and when the last token arrived."""
        self.counts.received_bytes += received
        self.counts.progress_events += progress
        if progress:
            self.stamps.last_progress_ns = self.clock.since_ns = last_ns

    def _take(self, data: bytes | memoryview, at: int) -> None:
        self.look_ns = 0
        response = self.response
        body = response.feed(data)
        if type(body) is not bytes:
            assert isinstance(body, WireFailure)
            self._fail_with(body)
            return
        answer = self.answer
        if (
            answer.events is None
            and self.stamps.headers_ns is None
            and response.status is not None
        ):
            self.stamps.headers_ns = at
            self.counts.headers_alone = not body
            if response.is_event_stream and answer.reader.streams:
                answer.events = EventStream()
        if body:
            self.counts.received_bytes += len(body)
            most = self.request.most_bytes or MAX_ANSWER_BYTES
            if response.is_success and self.counts.received_bytes > most:
                rule = (
                    ", the limit for an answer as long as was asked for"
                    if self.request.most_bytes
                    else ""
                )
                self.fail(
                    FailureKind.TOO_LARGE,
                    f"the answer did not end within {most} bytes{rule}",
                )
                return
            if answer.events is None:
                self._take_body(body, at)
            else:
                self._take_events(answer.events, body, at)
                if self.slab is not None:
                    self.slab.plain = (
                        data[-1] == LF
                        and response.between_chunks
                        and answer.events.between
                    )
        if response.complete and self.clock.phase != DONE:
            self.has_body_end = True
            self._finish_body(at)

    def _take_body(self, body: bytes, at: int) -> None:
        answer = self.answer
        if len(answer.data) < LONGEST_BEGINNING and self._streams_unnamed(body):
            body = bytes(answer.data) + body
            answer.data.clear()
            answer.events = EventStream()
            self._take_events(answer.events, body, at)
            return
        is_refusal = not self.response.is_success
        if self.answer.keep(body, is_refusal=is_refusal):
            return
        if is_refusal:
            self._finish_body(at)
        else:
            self.fail(
                FailureKind.TOO_LARGE,
                f"the answer's body is larger than {MAX_BODY_BYTES} bytes",
            )

    def _streams_unnamed(self, body: bytes) -> bool:
        """Whether these bytes show that the body is a stream of events, although its headers do not
        say so."""
        return (
            self.answer.reader.streams
            and self.response.is_success
            and self.response.is_plain
            and begins_events(bytes(self.answer.data) + body)
        )

    def _take_events(self, events: EventStream, body: bytes, at: int) -> None:
        progress = 0
        reader = self.answer.reader
        stamps = self.stamps
        counts = self.counts
        read_event = reader.event
        try:
            for data in events.feed(body):
                if read_event(data, at):
                    progress += 1
        except EventTooLarge as error:
            self.fail(FailureKind.TOO_LARGE, str(error))
            return
        if not progress:
            return
        # The kernel timestamp of a single token is exact, however late it is read. Of several in
        # one read only the last one's is known: the first may have arrived in time.
        if (
            progress == 1
            and self.is_overdue(at)
            and not reader.done
            and not counts.user_space_reads
        ):
            self.expire(at)
            return
        if stamps.last_progress_ns is None:
            stamps.first_progress_ns = at
            counts.first_merged = progress > 1
            self.clock.phase = STREAMING
            self.pool.mark_streaming(self.connection)
            # A user who counts tokens hangs up at once.
            if (
                self.response.is_chunked
                and not counts.user_space_reads
                and self.request.give_up is None
            ):
                self._keep_reads()
        elif self.understood_ns is None:
            self.pool.record_gap(at - stamps.last_progress_ns)
        stamps.last_progress_ns = self.clock.since_ns = at
        counts.progress_events += progress
        counts.merged += progress - 1
        give_up = self.request.give_up
        if (
            give_up is not None
            and give_up.tokens is not None
            and counts.progress_events >= give_up.tokens
            and not reader.done
        ):
            self.abort()

    def _keep_reads(self) -> None:
        """From now on, reads of whole events are understood later."""
        if self.connection is not None:
            self.slab = Slab()
            self.connection.keep_reads(self.slab)

    def connection_lost(self, kind: FailureKind, text: str, last_read_ns: int) -> None:
        """The connection ended (`kind`: reset or cut_off). That completes an answer without its own
        framing."""
        self.understand()
        if self.clock.phase == DONE:
            return
        if kind == FailureKind.CUT_OFF and self.response.ends_with_the_connection:
            self.has_body_end = True
            self._finish_body(last_read_ns)
        elif (
            self.reused
            and self.response.nothing_yet
            and time.monotonic_ns() - self.stamps.attempt_ns < REOPEN_WITHIN_NS
        ):
            self._reopen()
        else:
            self.fail(kind, f"{text} {self._where()}")

    def _finish_body(self, at: int) -> None:
        if self.answer.events is not None:
            try:
                last = self.answer.events.end()
            except EventTooLarge as error:
                self.fail(FailureKind.TOO_LARGE, str(error))
                return
            for data in last:
                self.counts.progress_events += self.answer.reader.event(data, at)
        self.stamps.ended_ns = at
        self._done()

    def _where(self) -> str:
        if self.response.status is None:
            return "before it answered"
        if self.counts.progress_events:
            return "in the middle of the answer"
        return "before the first token"

    # ------------------------------------------------------------------ the end

    def became_overdue(self, now_ns: int) -> bool:
        """`is_overdue`, without looking again before a timeout can have passed: this is asked of
        all exchanges ten times a second."""
        if now_ns < self.look_ns:
            return False
        if self.is_overdue(now_ns):
            return True
        self.look_ns = self._deadline_ns()
        return False

    def _deadline_ns(self) -> int:
        """When the next timeout passes, if nothing happens until then."""
        limit_s = self._limit_s
        request_s = self.clock.timeouts.request_s
        deadline_s = math.inf
        if limit_s is not None:
            deadline_s = self.clock.since_ns / NS_PER_S + limit_s
        if request_s is not None:
            deadline_s = min(deadline_s, self.stamps.started_ns / NS_PER_S + request_s)
        return NEVER_NS if math.isinf(deadline_s) else int(deadline_s * NS_PER_S)

    def is_overdue(self, at: int) -> bool:
        """Whether the current phase, or the whole request, has exceeded its timeout at `at`."""
        limit_s = self._limit_s
        return (
            limit_s is not None and at - self.clock.since_ns > limit_s * 1e9
        ) or self._is_request_overdue(at)

    def _is_request_overdue(self, at: int) -> bool:
        return not self.answer.reader.done and self.clock.is_request_overdue(
            at, self.stamps.started_ns
        )

    @property
    def _limit_s(self) -> float | None:
        is_opening = self.connection is not None and self.connection.state == OPENING
        return self.clock.limit_s(
            is_opening=is_opening, is_complete=self.answer.reader.done
        )

    def expire(self, now_ns: int) -> None:
        """The request or its current phase timed out: fail, unless there is another address to try
        or the answer is complete."""
        limit_s = self._limit_s
        connection = self.connection
        if self._is_request_overdue(now_ns):
            self.fail(
                FailureKind.REQUEST_TIMEOUT,
                f"no complete answer within {self.clock.timeouts.request_s:g} s",
            )
        elif connection is not None and connection.state == OPENING:
            self.clock.since_ns = now_ns
            if (
                connection.opening.connected_ns is not None
                or not connection.try_next_endpoint()
            ):
                self.fail(
                    FailureKind.CONNECT_TIMEOUT, f"no connection within {limit_s:g} s"
                )
        elif self.clock.phase != STREAMING:
            self.fail(
                FailureKind.FIRST_TOKEN_TIMEOUT, f"no first token within {limit_s:g} s"
            )
        elif self.answer.reader.done:
            # Complete, although the server keeps the stream open.
            self._finish_body(self.clock.since_ns)
        else:
            self.fail(
                FailureKind.TOKEN_TIMEOUT, f"no further token within {limit_s:g} s"
            )

    def fail(self, kind: FailureKind, text: str) -> None:
        """End the exchange with a failure, unless what has arrived ends it."""
        self.understand()
        self._fail_with(WireFailure(kind, text))

    def cancel(self) -> None:
        """Close the connection now; the exchange is neither success nor failure, unless what has
        arrived ends it."""
        self.pool.gather(self.connection)
        self.understand()
        if self.clock.phase != DONE:
            self.cancelled = True
            self._end_now()

    def abort(self) -> None:
        """The user hangs up: close the connection now, unless the answer is complete."""
        self.pool.gather(self.connection)
        self.understand()
        if self.clock.phase != DONE and not self.answer.reader.done:
            self.aborted = True
            self._end_now()

    def cancel_between_tries(self) -> None:
        """The request was refused and would have been sent again, but the run ended: it is neither
        success nor failure."""
        self.cancelled = True
        self.stamps.ended_ns = time.monotonic_ns()

    def _fail_with(self, failure: WireFailure) -> None:
        if self.clock.phase != DONE:
            self.failure = failure
            self._end_now()

    def _end_now(self) -> None:
        """End at the read that is being understood, else at this instant."""
        if not self.stamps.started_ns:  # it never got a socket
            self.on_start()
        self.stamps.ended_ns = self.understood_ns or time.monotonic_ns()
        self._done()

    def _done(self) -> None:
        self.clock.phase = DONE
        connection = self.connection
        self.connection = None
        if connection is not None:
            if not self.reused:
                self.opening = connection.opening
            if (
                self.request.reuse
                and connection.all_sent
                and self.response.leaves_the_connection_open
                and not self.failure
            ):
                self.pool.park(connection)
            else:
                connection.close()
        self.response.release()
        self.on_done(self)
