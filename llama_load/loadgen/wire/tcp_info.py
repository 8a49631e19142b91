"""What the kernel knows of a TCP connection."""

from __future__ import annotations

import _socket
import socket
import sys

# struct tcp_info (linux/tcp.h): tcpi_rtt in us and tcpi_total_retrans, both u32.
_TCP_INFO_BYTES = 104
_RTT_OFFSET = 68
_RETRANSMITTED_OFFSET = 100


def handshake_ns(sock: _socket.socket) -> int | None:
    """Round trip of the connection's handshake; None where the kernel does not report it or a
    segment was repeated."""
    if not sys.platform.startswith("linux"):
        return None
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    if len(info) < _TCP_INFO_BYTES or any(info[_RETRANSMITTED_OFFSET:_TCP_INFO_BYTES]):
        return None
    return int.from_bytes(info[_RTT_OFFSET : _RTT_OFFSET + 4], sys.byteorder) * 1000
