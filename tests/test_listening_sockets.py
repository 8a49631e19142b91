"""Who listens: the kernel's two answers agree."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator

import pytest

from llama_load.ground import listening_sockets
from llama_load.ground.listening_sockets import (
    ERROR,
    HEADER,
    NLM_F_DUMP_INTR,
    NLMSG_DONE,
    SOCK_DIAG_BY_FAMILY,
    _answers,
    by_netlink,
    by_proc,
    established_connections,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux says it")


@pytest.fixture
def ports() -> Iterator[set[int]]:
    """Of a server of each family, the first of which has a connection."""
    with (
        socket.create_server(("127.0.0.1", 0)) as first,
        socket.create_server(("::1", 0), family=socket.AF_INET6) as second,
        socket.create_connection(first.getsockname()),
    ):
        yield {first.getsockname()[1], second.getsockname()[1]}


def test_both_ways_name_the_same_sockets(ports: set[int]) -> None:
    asked, read = (
        {each for each in found() if each.port in ports}
        for found in (by_netlink, by_proc)
    )
    assert asked == read
    assert {each.port for each in asked} == ports
    assert {each.user for each in asked} == {os.getuid()}


@pytest.mark.parametrize(
    ("family", "bound", "host"),
    [
        (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
        (socket.AF_INET6, "::1", "::1"),
        (socket.AF_INET6, "::", "::ffff:127.0.0.1"),
    ],
)
def test_a_connection_has_both_its_ports_and_is_to_this_machine(
    family: int, bound: str, host: str
) -> None:
    with socket.socket(family) as server, socket.socket(family) as client:
        server.bind((bound, 0))
        server.listen()
        port = server.getsockname()[1]
        client.connect((host, port))
        inode = os.fstat(client.fileno()).st_ino
        (found,) = [each for each in established_connections() if each.inode == inode]
        own_port = client.getsockname()[1]
    assert (found.port, found.peer_port, found.user) == (own_port, port, os.getuid())
    assert found.is_to_this_machine
    away = found._replace(peer=bytes([192, 0, 2, 1]) + bytes(12))
    assert not away.is_to_this_machine


def test_where_the_kernel_does_not_say_its_table_is_read(
    ports: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening_sockets, "NETLINK_SOCK_DIAG", 31)
    with pytest.raises(OSError, match="not supported"):
        list(by_netlink())
    found = listening_sockets.listening_sockets(ports)
    assert {each.port for each in found} == ports


@pytest.mark.parametrize(
    ("read", "says"),
    [
        (HEADER.pack(20, NLMSG_DONE, 2, 0, 0) + ERROR.pack(-12), "could not list all"),
        (
            HEADER.pack(20, NLMSG_DONE, NLM_F_DUMP_INTR, 0, 0) + ERROR.pack(0),
            "came or went",
        ),
        (HEADER.pack(88, SOCK_DIAG_BY_FAMILY, 2, 0, 0) + bytes(40), "cut off"),
        (bytes(7), "cut off"),
    ],
)
def test_a_list_that_is_not_whole_is_an_error(read: bytes, says: str) -> None:
    """Who listens decides whether a server gets a key."""
    with pytest.raises(OSError, match=says):
        _answers(read)


def test_a_refusal_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening_sockets, "SOCK_DIAG_BY_FAMILY", 255)
    with pytest.raises(OSError, match="does not list sockets"):
        list(by_netlink())
