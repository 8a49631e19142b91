"""Linux begins to stamp segments with the first socket that wants stamps, after a while (see
`Transport`): before any test."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from llama_load.ground.clock import ANCILLARY_BYTES, SO_TIMESTAMPNS

WITHIN_S = 20.0


@pytest.fixture(scope="session", autouse=True)
def stamps_are_on() -> Iterator[None]:
    """Until the end of the tests."""
    if SO_TIMESTAMPNS is None:
        yield
        return
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as client,
    ):
        client.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        server, _ = listener.accept()
        with server:
            _wait(server, client)
            yield


def _wait(server: socket.socket, client: socket.socket) -> None:
    end = time.monotonic() + WITHIN_S
    while time.monotonic() < end:
        server.send(b"x")
        _, ancillary, _, _ = client.recvmsg(1, ANCILLARY_BYTES)
        if ancillary:
            return
        time.sleep(0.001)  # between two looks
    raise AssertionError("the kernel stamps nothing")
