"""One time axis: the kernel's receive stamps, which are CLOCK_REALTIME, put on the monotonic clock.

The offset between the two clocks is sampled with every batch of reads, so a step of the wall clock
(NTP, an administrator) moves no measurement made after it. What was received before the step and is read after it is
converted with the offset before (see `receipt_ns`).
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import time
from typing import Final

# Linux' SO_TIMESTAMPNS (asm-generic/socket.h); Python's socket module does not export it.
# LLAMA_LOAD_PORTABLE=1 does without, as on a platform that has none (see `llama_load.wire.poller`).
_KERNEL_STAMPS = sys.platform.startswith("linux") and not os.environ.get("LLAMA_LOAD_PORTABLE")
SO_TIMESTAMPNS: Final = 35 if _KERNEL_STAMPS else None
ANCILLARY_BYTES: Final = socket.CMSG_SPACE(16)
# A sample of the offset is only as good as the time it took: over this, somebody preempted us in between.
TIGHT_SAMPLE_NS: Final = 5_000
SAMPLE_TRIES: Final = 5
# Two samples that differ by more are from before and after a step: clocks that are slewed differ by less from read to read.
STEP_NS: Final = 1_000_000

# What recvmsg's ancillary data holds when only SO_TIMESTAMPNS was asked for: one struct timespec (seconds, ns).
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
            best_width, best = width, wall - ((before + after) >> 1)
        if width <= TIGHT_SAMPLE_NS:
            break
    return best


def kernel_stamp_ns(ancillary: list[tuple[int, int, bytes]]) -> int | None:
    """The receive stamp (CLOCK_REALTIME, ns) out of recvmsg's ancillary data; None if the kernel gave none."""
    if not ancillary:
        return None
    seconds, nanoseconds = unpack_timespec(ancillary[0][2])
    return int(seconds * 1_000_000_000 + nanoseconds)


def receipt_ns(stamp_ns: int, offset_ns: int, before_ns: int, now_ns: int) -> int:
    """A kernel stamp on the monotonic clock, where the wall clock was stepped since the last batch of reads.

    The stamp is from before the step or after it, so it is converted with either offset. What is later than now cannot be; of two
    that can, the later is right: the other is off by the whole step, into the past.
    """
    possible = [at for at in (stamp_ns - offset_ns, stamp_ns - before_ns) if at <= now_ns]
    return max(possible, default=now_ns)
