"""Converts the kernel's receive timestamps, which are CLOCK_REALTIME, to the monotonic clock.

The offset between the two clocks is sampled with every batch of reads, so a step of the wall clock
(NTP, an administrator) does not affect later measurements. Data received before the step and read
after it are converted with the offset before the step (see `receipt_ns`).
"""

from __future__ import annotations

import os
import select
import socket
import struct
import sys
import time
from typing import Final

# Linux' SO_TIMESTAMPNS (asm-generic/socket.h); Python's socket module does not export it.
# LLAMA_LOAD_PORTABLE=1 turns it off, as on platforms without it (see
# `llama_load.loadgen.wire.poller`). The stamps are read with epoll; of it gevent hides all but the
# constants.
_KERNEL_STAMPS = (
    sys.platform.startswith("linux")
    and hasattr(select, "EPOLLIN")
    and not os.environ.get("LLAMA_LOAD_PORTABLE")
)
SO_TIMESTAMPNS: Final = 35 if _KERNEL_STAMPS else None
ANCILLARY_BYTES: Final = socket.CMSG_SPACE(16)
# The error of an offset sample is the time it took: if that is longer, the process was preempted in
# between.
TIGHT_SAMPLE_NS: Final = 5_000
SAMPLE_TRIES: Final = 5
# A larger difference between two samples is a step of the wall clock: slewing changes the offset by
# less between reads.
STEP_NS: Final = 1_000_000

# recvmsg's ancillary data with only SO_TIMESTAMPNS set: one struct timespec (seconds, ns).
unpack_timespec: Final = struct.Struct("=qq").unpack


def wall_minus_mono_ns() -> int:
    """CLOCK_REALTIME - CLOCK_MONOTONIC in ns, from the tightest of a few samples."""
    best_width = None
    best = 0
    for _ in range(SAMPLE_TRIES):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        width = after - before
        if best_width is None or width < best_width:
            best_width = width
            best = wall - ((before + after) >> 1)
        if width <= TIGHT_SAMPLE_NS:
            break
    return best


def kernel_stamp_ns(ancillary: list[tuple[int, int, bytes]]) -> int | None:
    """The receive timestamp (CLOCK_REALTIME, ns) in recvmsg's ancillary data; None if it has
    none."""
    if not ancillary:
        return None
    seconds, nanoseconds = unpack_timespec(ancillary[0][2])
    return int(seconds * 1_000_000_000 + nanoseconds)


def receipt_ns(stamp_ns: int, offset_ns: int, before_ns: int, now_ns: int) -> int:
    """A kernel timestamp on the monotonic clock, after a step of the wall clock since the last
    batch of reads.

    The timestamp is from before or after the step, so it is converted with both offsets. A result
    in the future is wrong; of two in the past the later one is right, because the other is too
    early by the whole step.
    """
    possible = [
        at for at in (stamp_ns - offset_ns, stamp_ns - before_ns) if at <= now_ns
    ]
    return max(possible, default=now_ns)


class BatchClock:
    """The clocks when a batch of reads began: the monotonic one, CLOCK_REALTIME minus it, and that
    difference before a step of the wall clock since the last batch (without one: equal). All in
    ns."""

    __slots__ = ("before_ns", "now_ns", "offset_ns")

    def __init__(self, now_ns: int, offset_ns: int, before_ns: int) -> None:
        self.now_ns = now_ns
        self.offset_ns = offset_ns
        self.before_ns = before_ns

    def arrival_ns(self, timespec: bytes, previous_ns: int) -> int:
        """A kernel timestamp on the monotonic clock; `previous_ns`: that of the connection's last
        read."""
        seconds, nanoseconds = unpack_timespec(timespec)
        stamp_ns: int = seconds * 1_000_000_000 + nanoseconds
        at = stamp_ns - self.offset_ns
        if self.before_ns != self.offset_ns:
            at = receipt_ns(
                stamp_ns, self.offset_ns, self.before_ns, time.monotonic_ns()
            )
        # A step of the wall clock must not put a timestamp into the future, or before an earlier
        # one of this connection.
        if at > self.now_ns:
            at = min(at, time.monotonic_ns())
        return max(at, previous_ns)
