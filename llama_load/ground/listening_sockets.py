"""Which TCP sockets of this machine listen, and which are connected to it, as Linux says.

It is asked over netlink. For each reading of /proc/net/tcp the kernel goes through the table of all
connections, which takes 5 ms even where there are none.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

# Of linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h and net/tcp_states.h.
NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLM_F_REQUEST_AND_DUMP = 0x301
NLM_F_DUMP_INTR = 0x10
NLMSG_DONE = 3
TCP_ESTABLISHED = 1
TCP_LISTEN = 10
# nlmsghdr: length, type, flags, number, sender
HEADER = struct.Struct("=IHHII")
# inet_diag_req_v2: family, protocol, states, and of one socket's address nothing
QUESTION = struct.Struct("=BBxxI48x")
# inet_diag_msg: port, port and address of the other end, user, inode
ANSWER = struct.Struct("=4x2s2s16s16s24xII")
# of the end of a list: 0, or the negative number of an error
ERROR = struct.Struct("=i")
READ_BYTES = 64 * 1024

# A line of /proc/net/tcp: its state, and the numbers of its fields.
_LISTENS = " 0A "
_ADDRESS = 1
_USER = 7
_INODE = 9


LOOPBACK = (b"\x7f", bytes(10) + b"\xff\xff\x7f", bytes(15) + b"\x01")


class ListeningSocket(NamedTuple):
    """A socket that listens. `user`, `inode`: the numbers of its owner and of itself."""

    port: int
    user: int
    inode: int


def listening_sockets(ports: Collection[int]) -> list[ListeningSocket]:
    """Those that listen on these ports, at whatever address. Empty where they cannot be seen, and
    other than on Linux."""
    try:
        found = list(by_netlink())
    except OSError:  # a sandbox, or a kernel that does not have it
        found = list(by_proc())
    return [each for each in found if each.port in ports]


class Connection(NamedTuple):
    """A socket with an end. Addresses are of 4 or 16 bytes, filled up with zeros."""

    port: int
    peer_port: int
    address: bytes
    peer: bytes
    user: int
    inode: int

    @property
    def is_to_this_machine(self) -> bool:
        """Whether the other end is here, too."""
        return self.peer == self.address or self.peer.startswith(LOOPBACK)


def by_netlink() -> Iterator[ListeningSocket]:
    """All that listen. Raises OSError where the kernel does not say."""
    for each in _sockets_in(TCP_LISTEN):
        yield ListeningSocket(each.port, each.user, each.inode)


def established_connections() -> Iterator[Connection]:
    """All that are connected. Raises OSError where the kernel does not say, and elsewhere.

    (psutil reads a line for each that has ended, too: 13 ms on a busy machine, not 0.7.)
    """
    if sys.platform != "linux":
        raise OSError("only Linux lists sockets")
    yield from _sockets_in(TCP_ESTABLISHED)


def _sockets_in(state: int) -> Iterator[Connection]:
    if sys.platform != "linux":
        return
    # gevent's sockets would make a hub in every thread that asks
    from _socket import AF_INET, AF_INET6, AF_NETLINK, IPPROTO_TCP, SOCK_DGRAM, socket

    kernel = socket(AF_NETLINK, SOCK_DGRAM, NETLINK_SOCK_DIAG)
    try:
        for family in (AF_INET, AF_INET6):
            question = QUESTION.pack(family, IPPROTO_TCP, 1 << state)
            header = HEADER.pack(
                HEADER.size + QUESTION.size,
                SOCK_DIAG_BY_FAMILY,
                NLM_F_REQUEST_AND_DUMP,
                0,
                0,
            )
            kernel.sendto(header + question, (0, 0))
            is_done = False
            while not is_done:
                found, is_done = _answers(kernel.recv(READ_BYTES))
                yield from found
    finally:
        kernel.close()


def _answers(read: bytes) -> tuple[list[Connection], bool]:
    """The sockets of one read, and whether it is the last. Raises OSError for a refusal, and for a
    list that is not whole."""
    found: list[Connection] = []
    place = 0
    try:
        while place < len(read):
            length, kind, flags, _, _ = HEADER.unpack_from(read, place)
            if flags & NLM_F_DUMP_INTR:
                raise OSError("sockets came or went while the kernel listed them")
            if kind == NLMSG_DONE:
                (error,) = ERROR.unpack_from(read, place + HEADER.size)
                if error:
                    raise OSError(-error, "the kernel could not list all sockets")
                return found, True
            if kind != SOCK_DIAG_BY_FAMILY:
                raise OSError("the kernel does not list sockets")

            port, peer_port, *rest = ANSWER.unpack_from(read, place + HEADER.size)
            ports = (int.from_bytes(port), int.from_bytes(peer_port))
            found.append(Connection(*ports, *rest))
            place += length
    except struct.error as error:
        raise OSError("the kernel's list of sockets is cut off") from error
    return found, False


def by_proc() -> Iterator[ListeningSocket]:
    """All that listen. (psutil decodes the addresses of all connections: during a load test
    thousands, while the client stands still.)"""
    for table in ("tcp", "tcp6"):
        # there may be no IPv6
        with (
            suppress(OSError),
            Path("/proc/net", table).open(encoding="ascii") as lines,
        ):
            for line in lines:
                if _LISTENS in line:
                    fields = line.split()
                    port = int(fields[_ADDRESS].rpartition(":")[2], 16)
                    yield ListeningSocket(port, int(fields[_USER]), int(fields[_INODE]))
