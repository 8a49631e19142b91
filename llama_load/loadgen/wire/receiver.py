"""Reads sockets by the compiled receiver, a thread that never holds the interpreter's lock
(`_receiver.c`).

Python still connects and sends. A socket goes to the thread before its request is sent; the thread
keeps its reads with their arrival times. Python is woken

- for every read of a stream that waits for its first token, or that is encrypted;
- of a stream whose reads may be kept, only for a read that may end the answer, for its end, and
  when 32 KiB have come together.

So nothing that Python does (understanding, records, garbage collection, greenlets of users) delays
a read. Without the compiled module (no compiler, another system, LLAMA_LOAD_RECEIVER=python)
`llama_load.loadgen.wire.poller` and `llama_load.loadgen.wire.read_loop` do the same in Python, and give the same
records.
"""

from __future__ import annotations

import importlib
import os
from contextlib import suppress
from typing import Any

from gevent import monkey

from llama_load.ground.clock import SO_TIMESTAMPNS
from llama_load.loadgen.wire.poller import (
    READABLE,
    WRITABLE,
    Deliver,
    EpollPoller,
    GeventPoller,
    Handler,
    Poller,
    Received,
)
from llama_load.loadgen.wire.priority import NORMAL, REAL_TIME, SenderPriority

try:
    # A name that import-linter does not resolve: there is no Python file behind it.
    _compiled: Any = importlib.import_module("llama_load.loadgen.wire._receiver")
except ImportError:
    _compiled = None

COMPILED = "compiled"
PYTHON = "python"

# Streams of one turn; other work of the event loop comes in between.
MOST_STREAMS = 64
MOST_SENDERS = 64


def compiled_receiver() -> Any:
    """The class of the compiled receiver; None where it cannot be used."""
    if SO_TIMESTAMPNS is None or os.environ.get("LLAMA_LOAD_RECEIVER") == PYTHON:
        return None
    return None if _compiled is None else _compiled.Receiver


class ReceiverPoller(Poller):
    """A `Poller` whose sockets are read by the thread from the moment when they are connected.

    `handler` gets the events of sockets that send or are parked, `deliver` what was received.
    """

    def __init__(
        self, loop: Any, handler: Handler, deliver: Deliver, receiver: Any
    ) -> None:
        self._handler = handler
        self._deliver = deliver
        self._receiver = receiver
        self._generations: dict[int, int] = {}  # of the sockets that the thread reads
        self._held: set[int] = set()
        self._watched: set[int] = set()
        self._senders = monkey.get_original("select", "epoll")()
        self._sender_watcher = loop.io(self._senders.fileno(), 1)
        self._sender_watcher.start(self._look_at_senders)
        self._wake_watcher = loop.io(receiver.fileno(), 1)
        self._wake_watcher.start(self._collect)

    def watch(self, fd: int, *, writable: bool) -> None:
        """See `Poller.watch`."""
        is_received = fd in self._generations
        if writable or not is_received:
            readable = 0 if is_received else READABLE
            self._watch_in_python(fd, readable | (WRITABLE if writable else 0))
        else:
            self._stop_watching(fd)
        if fd in self._held:
            self._held.discard(fd)
            self._receiver.hold(fd, False)

    def receive(self, fd: int) -> None:
        """See `Poller.receive`."""
        if fd in self._generations:
            return
        try:
            generation = self._receiver.add(fd)
        # the kernel's limit of watched descriptors or memory: Python reads this one
        except OSError:
            return
        self._generations[fd] = generation
        self._stop_watching(fd)

    def park(self, fd: int) -> bool:
        """See `Poller.park`."""
        has_more = self._stop_receiving(fd)
        self._watch_in_python(fd, READABLE)
        return not has_more

    def keep(self, fd: int) -> None:
        """See `Poller.keep`."""
        if fd in self._generations:
            self._receiver.keep(fd)

    def hold(self, fd: int) -> None:
        """See `Poller.hold`: the thread goes on, as far as a stream's memory allows."""
        if fd in self._generations:
            self._held.add(fd)
            self._receiver.hold(fd, True)
        else:
            self._stop_watching(fd)

    def forget(self, fd: int) -> None:
        """See `Poller.forget`."""
        self._stop_receiving(fd)
        self._watched.discard(fd)

    def gather(self, fd: int) -> Received | None:
        """See `Poller.gather`."""
        return (
            self._received(self._receiver.take(fd)) if fd in self._generations else None
        )

    def read_now(self, fd: int) -> bool:
        """See `Poller.read_now`."""
        if fd not in self._generations:
            return False
        self._receiver.receive(fd)
        self._collect()
        return True

    def silent(self, before_ns: int) -> list[int]:
        """See `Poller.silent`."""
        return list(self._receiver.silent(before_ns))

    @property
    def thread_id(self) -> int:
        """See `Poller.thread_id`."""
        return int(self._receiver.facts()[0])

    def take_real_time(self, is_wanted: bool) -> bool:
        """See `Poller.take_real_time`."""
        return bool(self._receiver.real_time(is_wanted))

    def _watch_in_python(self, fd: int, mask: int) -> None:
        if fd in self._watched:
            self._senders.modify(fd, mask)
        else:
            self._watched.add(fd)
            self._senders.register(fd, mask)

    def _stop_watching(self, fd: int) -> None:
        if fd in self._watched:
            self._watched.discard(fd)
            self._senders.unregister(fd)

    def _stop_receiving(self, fd: int) -> bool:
        """Whether something was received that nobody has taken."""
        self._held.discard(fd)
        if self._generations.pop(fd, None) is None:
            return False
        return bool(self._receiver.remove(fd))

    def _look_at_senders(self) -> None:
        events = self._senders.poll(0, MOST_SENDERS)
        # A socket that is received is read by the thread alone.
        mine = [
            (fd, bits & WRITABLE if fd in self._generations else bits)
            for fd, bits in events
        ]
        if mine:
            self._handler(mine)

    def _collect(self) -> None:
        for found in self._receiver.collect(MOST_STREAMS):
            received = self._received(found)
            if received is not None:
                self._deliver(received)

    def _received(
        self, found: tuple[int, int, list[bytes], list[int], int, int]
    ) -> Received | None:
        """What the thread gave; None if its socket was closed meanwhile, and its number perhaps
        given to another."""
        fd, generation, reads, stamps, plain, ended = found
        if self._generations.get(fd) != generation:
            return None
        return Received(fd, reads, stamps, plain, ended)


class ReceiverPriority:
    """The priorities of a process in which a thread receives (`ReceiverPoller`).

    Only that thread takes real-time priority; it gives it back by itself while it uses most of a
    core. The thread that sends takes the best nice value that it may have: it sends on time beside
    busy programs, and wakes up on an idle core, where a real-time thread would take the core that
    it used last from the server that runs there.
    """

    def __init__(self, poller: Poller) -> None:
        self._poller = poller
        self._sender = SenderPriority(may_be_real_time=False)
        self.taken = NORMAL

    def take(self) -> str:
        """Raise the priorities, as far as the system allows it; returns their names."""
        sender = self._sender.take()
        if self._poller.take_real_time(True):
            self.taken = f"{REAL_TIME} to receive, {sender} to send"
        else:
            self.taken = sender
        return self.taken

    def give_back(self) -> None:
        """Return to the priorities before `take`."""
        self._poller.take_real_time(False)
        self._sender.give_back()

    def adapt(self) -> None:
        """See `SenderPriority.adapt`: the thread does it."""


def best_poller(loop: Any, handler: Handler, deliver: Deliver) -> Poller:
    """The best poller that this installation and platform support."""
    receiver = compiled_receiver()
    if receiver is not None:
        with suppress(OSError):  # no descriptor or no thread is left
            return ReceiverPoller(loop, handler, deliver, receiver())
    if SO_TIMESTAMPNS is not None:
        return EpollPoller(loop, handler)
    return GeventPoller(loop, handler)
