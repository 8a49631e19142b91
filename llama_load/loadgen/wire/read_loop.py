"""Reads the sockets that are ready: once per token, so the most frequent code of all.

Of a stream whose reads are kept, a read costs one system call and two appends. What every read
needs is written out in `handle` (a method call takes 0.1 us), and everything else is left to the
connection.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from llama_load.ground.clock import (
    ANCILLARY_BYTES,
    SO_TIMESTAMPNS,
    STEP_NS,
    BatchClock,
    unpack_timespec,
    wall_minus_mono_ns,
)
from llama_load.ground.failure_kind import FailureKind
from llama_load.loadgen.wire.poller import (
    BROKEN,
    END_OF_STREAM,
    HUNG_UP,
    READABLE,
    WRITABLE,
    Received,
)
from llama_load.loadgen.wire.slab import (
    KEPT_READ_BYTES,
    LEAST_READ_BYTES,
    READ_OVERHEAD_BYTES,
    WHOLE_EVENTS_END,
)

if TYPE_CHECKING:
    from llama_load.loadgen.wire.connection import Connection, Listener
    from llama_load.loadgen.wire.pool import ConnectionPool

logger = logging.getLogger(__name__)

READ_BUFFER_BYTES = 64 * 1024


class ReadLoop:
    """Reads the sockets of a pool."""

    def __init__(self) -> None:
        self._buffer = bytearray(READ_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._offset = wall_minus_mono_ns() if SO_TIMESTAMPNS is not None else 0

    def handle(self, pool: ConnectionPool, events: Sequence[tuple[int, int]]) -> None:
        """Read or write what the poller saw ready."""
        offset = wall_minus_mono_ns() if SO_TIMESTAMPNS is not None else 0
        before = self._offset if abs(offset - self._offset) > STEP_NS else offset
        self._offset = offset
        now = time.monotonic_ns()
        batch = BatchClock(now, offset, before)
        poller = pool.poller
        streams = pool.streams if before == offset else {}
        usual_gap = shortest_gap = poller.gap_ns
        gaps = shorter = 0
        for fd, bits in events:
            stream = streams.get(fd)
            if stream is None or bits != READABLE:
                self._look_at(pool, fd, bits, batch)
                continue
            connection, sock, slab = stream
            try:
                data, ancillary, _, _ = sock.recvmsg(KEPT_READ_BYTES, ANCILLARY_BYTES)
                size = len(data)
                if (
                    ancillary
                    and LEAST_READ_BYTES <= size < KEPT_READ_BYTES
                    and data.endswith(WHOLE_EVENTS_END)
                ):
                    # As `BatchClock.arrival_ns` does.
                    seconds, nanoseconds = unpack_timespec(ancillary[0][2])
                    at = seconds * 1_000_000_000 + nanoseconds - offset
                    previous = connection.read_ns
                    if at > now:
                        at = min(at, time.monotonic_ns())
                    gap = at - previous
                    gaps += 1
                    if gap < usual_gap:
                        at = max(at, previous)
                        gap = max(gap, 0)
                        shorter += 1
                        shortest_gap = min(shortest_gap, gap)
                    connection.read_ns = at
                    slab.reads.append(data)
                    slab.stamps.append(at)
                    slab.room -= size + READ_OVERHEAD_BYTES
                    if slab.room <= 0:
                        connection.slab_is_full()
                    continue
                connection.received(data, ancillary, batch)
                if size == KEPT_READ_BYTES:
                    connection.on_readable(self._buffer, self._view, batch)
            except (BlockingIOError, InterruptedError):
                pass
            except OSError as error:
                connection.broke(error)
            except Exception as error:
                _give_up(connection, error)
        if gaps:
            poller.record_gaps(gaps, shorter, shortest_gap)

    def deliver(self, pool: ConnectionPool, received: Received) -> None:
        """Take what a thread received on a socket (see `llama_load.loadgen.wire.receiver`)."""
        connection = pool.connections.get(received.fd)
        if connection is None:
            return
        try:
            _deliver(pool, connection, received)
        except Exception as error:
            _give_up(connection, error)

    def _look_at(
        self, pool: ConnectionPool, fd: int, bits: int, batch: BatchClock
    ) -> None:
        connection = pool.connections.get(fd)
        if connection is None:
            return
        try:
            is_opening = connection.opening.connected_ns is None
            if bits & WRITABLE or (bits & BROKEN and is_opening):
                connection.on_writable()
                # The other bits may be about a socket to another address, which is closed by now,
                # while a thread reads the present one. What has come is reported again.
                if is_opening:
                    return
            if bits & (READABLE | BROKEN | HUNG_UP):
                connection.on_readable(self._buffer, self._view, batch)
        except Exception as error:
            _give_up(connection, error)


def _deliver(pool: ConnectionPool, connection: Connection, received: Received) -> None:
    exchange = connection.exchange
    stream = pool.streams.get(received.fd)
    begin = 0
    if stream is not None:
        slab = stream[2]
        begin = received.plain
        slab.extend(received.reads[:begin], received.stamps[:begin])
        if begin:
            connection.read_ns = slab.stamps[-1]

    # These may end the answer, or change how it is read.
    for index in range(begin, len(received.reads)):
        if connection.exchange is not exchange or exchange is None:
            connection.close()  # what comes after an answer makes its connection unusable
            return
        stamp = received.stamps[index]
        connection.take(
            received.reads[index],
            max(abs(stamp), connection.read_ns),
            is_stamped=stamp > 0,
        )

    if received.ended:
        _end(connection, exchange, received.ended)
    elif stream is not None and stream[2].room <= 0 and connection.exchange is exchange:
        connection.slab_is_full()


def _end(connection: Connection, exchange: Listener | None, ended: int) -> None:
    """The peer has ended the connection, or reading it failed with an errno."""
    if connection.exchange is not exchange or exchange is None:
        connection.close()
    elif ended == END_OF_STREAM:
        connection.ended()
    else:
        connection.broke(OSError(ended, os.strerror(ended)))


def _give_up(connection: Connection, error: Exception) -> None:
    """A bug here must cost one request, not the loop."""
    logger.exception("reading an answer failed")
    if connection.exchange is not None:
        connection.exchange.fail(
            FailureKind.CLIENT_ERROR, f"llama-load itself failed: {error!r}"
        )
    else:
        connection.close()
