"""Which sockets are read first, and which are not read for a while. On socket pairs, without a
running event loop."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator, Sequence
from types import SimpleNamespace

import pytest

from llama_load.loadgen.wire.poller import EpollPoller

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="epoll")


class Loop:
    """Stands in for gevent's loop: its watchers are never called."""

    def io(self, *_: object) -> SimpleNamespace:
        return SimpleNamespace(start=lambda _: None, stop=lambda: None)

    timer = io


@pytest.fixture
def pairs() -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    """(ours, the server's), five times."""
    made = [socket.socketpair() for _ in range(5)]
    yield made
    for ours, theirs in made:
        ours.close()
        theirs.close()


def test_first_tokens_are_read_before_the_batch(
    pairs: Sequence[tuple[socket.socket, socket.socket]],
) -> None:
    """Three streams have data before two waiting sockets have: the waiting ones are handled
    first."""
    handled: list[list[int]] = []
    poller = EpollPoller(
        Loop(), lambda events: handled.append(sorted(fd for fd, _ in events))
    )
    fds = [ours.fileno() for ours, _ in pairs]
    for fd in fds:
        poller.watch(fd, writable=False)
    for fd in fds[:3]:
        poller.stream(fd)
    for _, theirs in pairs:
        theirs.send(b"token")
    poller._read_batch()
    assert handled == [sorted(fds[3:]), sorted(fds[:3])]


def test_a_held_socket_is_not_reported_until_it_is_watched_again(
    pairs: Sequence[tuple[socket.socket, socket.socket]],
) -> None:
    """One that streams and one that waits; holding twice, and closing while held, are harmless."""
    handled: list[int] = []
    poller = EpollPoller(Loop(), lambda events: handled.extend(fd for fd, _ in events))
    streaming, waiting = (ours.fileno() for ours, _ in pairs[:2])
    for fd in (streaming, waiting):
        poller.watch(fd, writable=False)
    poller.stream(streaming)
    for _, theirs in pairs[:2]:
        theirs.send(b"token")
    for _ in range(2):
        poller.hold(streaming)
        poller.hold(waiting)
    poller._read_batch()
    poller._read_urgent()
    assert not handled
    poller.forget(waiting)
    poller.watch(streaming, writable=False)
    poller.stream(streaming)
    poller._read_batch()
    assert handled == [streaming]
