"""Whether sockets are read between greenlets that all become ready at once."""

from __future__ import annotations

import socket
import time

import gevent
from gevent.lock import Semaphore

from llama_load.loadgen.wire.fair_queue import BUDGET_NS, FairQueue

GREENLETS = 20


def test_greenlets_that_one_event_wakes_take_turns_with_the_loop() -> None:
    """gevent resumes all that wait on one semaphore before it reads a socket. Each of them works a
    little longer than its turn."""
    loop = gevent.get_hub().loop
    queue, ready, order = FairQueue(loop), Semaphore(0), []

    def send(number: int) -> None:
        ready.acquire()
        queue.wait()
        order.append(str(number))
        until_ns = time.monotonic_ns() + BUDGET_NS * 5 // 4
        while time.monotonic_ns() < until_ns:
            pass

    ours, theirs = socket.socketpair()
    watcher = loop.io(ours.fileno(), 1)
    greenlets = [gevent.spawn(send, number) for number in range(GREENLETS)]
    gevent.sleep(0)  # all of them begin

    def read() -> None:
        order.append("read")
        ours.recv(1)

    try:
        watcher.start(read)
        theirs.send(b"t")
        for _ in greenlets:
            ready.release()
        gevent.joinall(greenlets, raise_error=True)
    finally:
        watcher.stop()
        watcher.close()
        ours.close()
        theirs.close()
    assert [each for each in order if each != "read"] == [
        str(number) for number in range(GREENLETS)
    ]
    assert order.index("read") <= 2


def test_a_greenlet_that_is_alone_does_not_wait() -> None:
    queue = FairQueue(gevent.get_hub().loop)
    before = gevent.get_hub().loop.iteration
    queue.wait()
    assert gevent.get_hub().loop.iteration == before
    gevent.sleep(0.001)  # a turn of the loop
