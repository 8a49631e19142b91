"""Timestamps of the kernel: of what a socket received, and of what it sent. Linux only; elsewhere
there are none."""

from __future__ import annotations

import socket
import struct
import sys
import time
from collections.abc import Sequence

ON_LINUX = sys.platform.startswith("linux")
SO_TIMESTAMPNS = 35
SO_TIMESTAMPING = 37
TX_SOFTWARE = 1 << 1
SOFTWARE = 1 << 4
TIMESTAMP_ONLY = 1 << 11  # without the data that was sent
MSG_ERRQUEUE = 0x2000
CONTROL = 512  # bytes, for the ancillary data of a read
CLOCK_TRIES = 5
NEAR_NS = 2000  # two reads of the clock that lie so close were not interrupted
Ancillary = Sequence[tuple[int, int, bytes]]


def ask_for_stamps(connection: socket.socket) -> None:
    """Switch both kinds on, where there are any."""
    if not ON_LINUX:
        return
    connection.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    connection.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, SOFTWARE | TIMESTAMP_ONLY)


def wall_minus_mono_ns() -> int:
    """CLOCK_REALTIME - CLOCK_MONOTONIC, from a sample that was not interrupted."""
    offset = 0
    for _ in range(CLOCK_TRIES):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        offset = wall - (before + after) // 2
        if after - before < NEAR_NS:
            break
    return offset


def receipt_ns(ancillary: Ancillary) -> int | None:
    """When the kernel received what was read, on the monotonic clock."""
    return _stamp_ns(ancillary, SO_TIMESTAMPNS)


def send_stamped(connection: socket.socket, data: bytes) -> int:
    """Send it all; the instant at which the kernel passed it on, 0 where it gives none."""
    if not ON_LINUX:
        connection.sendall(data)
        return 0

    flags = struct.pack("I", TX_SOFTWARE)
    control = [(socket.SOL_SOCKET, SO_TIMESTAMPING, flags)]
    taken = connection.sendmsg([data], control)
    if taken < len(data):
        connection.sendall(data[taken:])
    try:
        _, ancillary, _, _ = connection.recvmsg(
            0, CONTROL, MSG_ERRQUEUE | socket.MSG_DONTWAIT
        )
    except OSError:
        return 0
    return _stamp_ns(ancillary, SO_TIMESTAMPING) or 0


def _stamp_ns(ancillary: Ancillary, kind: int) -> int | None:
    for level, found, data in ancillary:
        if level == socket.SOL_SOCKET and found == kind:
            seconds, nanoseconds = struct.unpack_from("qq", data)
            wall = int(seconds) * 1_000_000_000 + int(nanoseconds)
            return wall - wall_minus_mono_ns()
    return None
