"""Finds the sockets to read or write: with epoll where there are kernel timestamps, with gevent's
watchers elsewhere.

A wake-up costs more than parsing its bytes, and because the kernel timestamps every segment on
receipt, reading a few milliseconds late loses nothing. So `EpollPoller` keeps two epoll sets:

- connections that open, send or wait for their first token are in the *urgent* set, which is read
  at once;
- connections that stream are in the *batch* set. With few streams, or gaps too short for batching,
  it is read at once as well; otherwise every few milliseconds, all ready sockets together.

The period stays below a third of the smallest recent gap between tokens (its 1 % quantile, which
ignores outliers), because the kernel merges segments that wait unread in one receive queue and
keeps only the last timestamp: 3 ms on gaps of 1.2 ms moved TTFT by +1.1 ms, on gaps of 5 ms not at
all.

gevent hides epoll; `monkey.get_original` returns it. gevent's loop can watch an epoll file
descriptor, so no thread and no polling is needed.

Without epoll or kernel timestamps (macOS), `GeventPoller` reads every socket as soon as it is
ready, because reading late would make the timestamps late.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gevent import monkey

FEW_STREAMS = 8  # below this, one wake-up per token is cheap
LONGEST_PERIOD_NS = 3_000_000
SHORTEST_PERIOD_NS = 1_000_000  # libev's timers on epoll are no finer
# 1 to 2 ms of work. Streams that began together get their tokens together, 400 at a time; sends and
# first tokens must not wait for all of them.
MOST_EVENTS = 64
# The number of gaps that are read at once, without batching; the shortest one is the initial
# estimate.
LEARNING_GAPS = 64
# Multiplicative steps whose ratio makes the estimate settle where 1 % of the gaps are shorter.
GAP_DOWN = 0.98
GAP_UP = 1.0002

# The bits of poll(2), which epoll shares.
READABLE = 0x1
WRITABLE = 0x4
BROKEN = 0x8
HUNG_UP = 0x10

# `Received.ended` where the peer has ended the connection.
END_OF_STREAM = -1

Handler = Callable[[Sequence[tuple[int, int]]], None]


@dataclass(frozen=True, slots=True)
class Received:
    """Reads of one socket, in their order.

    `stamps`: their arrival times, monotonic ns; negative where the kernel gave none, so that the
    thread's clock was taken. `plain`: so many of the first reads hold whole events and have the
    kernel's time. `ended`: 0 if the stream goes on, -1 if the peer has ended it, else the errno of
    the failure.
    """

    fd: int
    reads: Sequence[bytes]
    stamps: Sequence[int]
    plain: int
    ended: int


Deliver = Callable[[Received], None]


class Poller(ABC):
    """Watches file descriptors and hands (fd, bits) pairs to a handler, from the event loop.
    `gap_ns`: its estimate of the smallest gap between tokens."""

    gap_ns: float = math.inf

    @abstractmethod
    def watch(self, fd: int, *, writable: bool) -> None:
        """Report at once when `fd` is readable or (`writable`) writable. Also changes one that is
        watched already."""

    @abstractmethod
    def hold(self, fd: int) -> None:
        """Report nothing about `fd` until it is watched again."""

    @abstractmethod
    def forget(self, fd: int) -> None:
        """`fd` is about to be closed."""

    def stream(self, fd: int) -> None:
        """`fd` streams: it may be read a little late. Without effect where every read is at
        once."""

    def park(self, fd: int) -> bool:
        """`fd` waits for its next request: report whatever comes. False: something has come
        already."""
        self.watch(fd, writable=False)
        return True

    def record_gap(self, gap_ns: int) -> None:
        """Learn from the time between two tokens of one stream."""

    def record_gaps(self, count: int, shorter: int, shortest_ns: float) -> None:
        """Learn from many gaps at once: how many of them were `shorter` than `gap_ns`, and the
        shortest."""

    # Where a thread receives (`llama_load.loadgen.wire.receiver`), what it holds is not all reported yet.

    def receive(self, fd: int) -> None:
        """`fd` is connected and about to send: a thread that receives reads it from now on."""

    def keep(self, fd: int) -> None:
        """Reads of whole events of `fd` may be kept: report only what has to be looked at."""

    def gather(self, fd: int) -> Received | None:
        """What was received on `fd` and is not reported yet."""
        return None

    def read_now(self, fd: int) -> bool:
        """Read and report what waits in the kernel. False: the caller has to do that."""
        return False

    def silent(self, before_ns: int) -> Sequence[int]:
        """The descriptors that have something to `gather`, all of which arrived before then."""
        return ()

    @property
    def thread_id(self) -> int | None:
        """The thread that receives; None where it is the caller's."""
        return None

    def take_real_time(self, is_wanted: bool) -> bool:
        """Give the thread that receives real-time priority, or take it back. Whether it has it."""
        return False


class EpollPoller(Poller):
    """Two epoll sets, and the rule when to read them (see above)."""

    def __init__(self, loop: Any, handler: Handler) -> None:
        epoll = monkey.get_original("select", "epoll")
        self.gap_ns = math.inf
        self._gaps_to_learn = LEARNING_GAPS
        self._loop = loop
        self._handler = handler
        self._urgent = epoll()
        self._batch = epoll()
        self._watched: set[int] = set()
        self._streaming: set[int] = set()
        self._timer: Any = None
        self._soon = loop.timer(0)
        self._period_ns = 0
        self._urgent_watcher = loop.io(self._urgent.fileno(), 1)
        self._batch_watcher = loop.io(self._batch.fileno(), 1)
        self._urgent_watcher.start(self._read_urgent)
        self._batch_watcher.start(self._read_batch)

    def watch(self, fd: int, *, writable: bool) -> None:
        """See `Poller.watch`."""
        mask = READABLE | WRITABLE if writable else READABLE
        if fd in self._streaming:
            self._batch.unregister(fd)
            self._streaming.discard(fd)
            self._watched.discard(fd)
            self._retune()
        if fd in self._watched:
            self._urgent.modify(fd, mask)
        else:
            self._watched.add(fd)
            self._urgent.register(fd, mask)

    def stream(self, fd: int) -> None:
        """See `Poller.stream`."""
        if fd not in self._streaming:
            self._urgent.unregister(fd)
            self._batch.register(fd, READABLE)
            self._streaming.add(fd)
            self._retune()

    def hold(self, fd: int) -> None:
        """See `Poller.hold`."""
        if fd in self._watched:
            (self._batch if fd in self._streaming else self._urgent).unregister(fd)
            self.forget(fd)

    def forget(self, fd: int) -> None:
        """See `Poller.forget`. Closing takes it out of its epoll set."""
        self._watched.discard(fd)
        if fd in self._streaming:
            self._streaming.discard(fd)
            self._retune()

    def record_gap(self, gap_ns: int) -> None:
        """See `Poller.record_gap`."""
        self.record_gaps(1, gap_ns < self.gap_ns, min(gap_ns, self.gap_ns))

    def record_gaps(self, count: int, shorter: int, shortest_ns: float) -> None:
        """See `Poller.record_gaps`."""
        if self._gaps_to_learn:
            self._gaps_to_learn = max(0, self._gaps_to_learn - count)
            self.gap_ns = min(self.gap_ns, max(shortest_ns, 1))
            return
        gap_ns = self.gap_ns * GAP_UP ** (count - shorter)
        # Many gaps at once bring it below the shortest of them by at most one step, as they would
        # one after the other.
        self.gap_ns = (
            max(gap_ns * GAP_DOWN**shorter, shortest_ns * GAP_DOWN)
            if shorter
            else gap_ns
        )

    def _read_urgent(self) -> None:
        # All of them: a first token that is read together with the second loses its own timestamp.
        if events := self._urgent.poll(0):
            self._handler(events)

    def _read_batch(self) -> None:
        # First tokens first: where all tokens come at once and the core is full, late reads cost
        # gaps, not TTFT.
        if len(self._watched) > len(self._streaming):
            self._read_urgent()
        if events := self._batch.poll(0, MOST_EVENTS):
            self._handler(events)
        if len(events) == MOST_EVENTS and self._timer is not None:
            self._soon.start(
                self._read_batch
            )  # the rest, after other greenlets had a turn
        else:
            self._soon.stop()
            self._retune()

    def _retune(self) -> None:
        period = (
            0 if self._gaps_to_learn else min(LONGEST_PERIOD_NS, int(self.gap_ns / 3))
        )
        if len(self._streaming) < FEW_STREAMS or period < SHORTEST_PERIOD_NS:
            period = 0
        if period == self._period_ns or (
            period and self._period_ns and abs(period - self._period_ns) < 250_000
        ):
            return
        if self._timer is not None:
            self._timer.stop()
            self._timer.close()
            self._timer = None
        if period:
            self._batch_watcher.stop()
            self._timer = self._loop.timer(period / 1e9, period / 1e9)
            self._timer.start(self._read_batch)
        else:
            self._batch_watcher.start(self._read_batch)
        self._period_ns = period


class GeventPoller(Poller):
    """A gevent io watcher for each file descriptor, with the loop's backend: kqueue, poll,
    epoll."""

    def __init__(self, loop: Any, handler: Handler) -> None:
        self._loop = loop
        self._handler = handler
        self._watchers: dict[int, Any] = {}

    def watch(self, fd: int, *, writable: bool) -> None:
        """See `Poller.watch`."""
        self.forget(fd)
        watcher = self._watchers[fd] = self._loop.io(fd, 3 if writable else 1)
        watcher.start(self._ready, fd, pass_events=True)

    def hold(self, fd: int) -> None:
        """See `Poller.hold`."""
        self.forget(fd)

    def forget(self, fd: int) -> None:
        """See `Poller.forget`."""
        watcher = self._watchers.pop(fd, None)
        if watcher is not None:
            watcher.stop()
            watcher.close()

    def _ready(self, events: int, fd: int) -> None:
        self._handler(
            [(fd, (READABLE if events & 1 else 0) | (WRITABLE if events & 2 else 0))]
        )
