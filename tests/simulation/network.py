"""A virtual network: each worker has two connections to the master, which keep their order, may be
slow, cut or broken."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from tests.simulation.machines import Machine
from tests.simulation.virtual_loop import NS, Callback, VirtualLoop

QUEUED = 1000
# A worker's ZeroMQ closes a connection without an answer after this time, and looks for a new one.
NO_ANSWER_S = 6.0
TO_MASTER = "to master"
TO_WORKER = "to worker"
WAYS = (TO_MASTER, TO_WORKER)


class Way:
    """One direction of a connection: messages arrive in order, after a delay each."""

    def __init__(
        self, loop: VirtualLoop, receiver: Machine, deliver: Callable[[Any], None]
    ) -> None:
        self._loop = loop
        self._receiver = receiver
        self._deliver = deliver
        self._messages: deque[Any] = deque()
        self._due = 0
        self._generation = 0
        self._latest_ns = 0
        self.is_cut = False

    def __len__(self) -> int:
        return len(self._messages)

    def send(self, message: Any, delay_s: float) -> None:
        """The message arrives after this delay, and after those before it."""
        self._messages.append(message)
        self._latest_ns = max(self._latest_ns, self._loop.now_ns + round(delay_s * NS))
        callback = Callback(self._arrived, (self._generation,), None)
        with self._loop.on(None):
            self._loop.call_after((self._latest_ns - self._loop.now_ns) / NS, callback)

    def _arrived(self, generation: int) -> None:
        if generation == self._generation:
            self._due += 1
            self.pump()

    def pump(self) -> None:
        """Deliver what has arrived, unless the way is cut or the receiver stands still."""
        while self._due and not self.is_cut and not self._receiver.is_stopped:
            self._due -= 1
            message = self._messages.popleft()
            if not self._receiver.is_dead:
                self._deliver(message)

    def lose(self) -> None:
        """The connection is gone, and with it what was under way."""
        self._messages.clear()
        self._due = 0
        self._generation += 1


class Link:
    """A worker's two connections. `worker` and `master` are the ends: objects with the callbacks
    below.

    worker: `received(message)`, `connected()`, `disconnected()`; master: `received(worker,
    message)`, `connected(worker)`, `closed(worker)`. `records_take`: the delay of records / that of
    other messages."""

    def __init__(
        self,
        loop: VirtualLoop,
        chance: Random,
        worker: Any,
        master: Any,
        *,
        records_take: float = 1.0,
    ) -> None:
        self._loop = loop
        self._chance = chance
        self.worker = worker
        self.master = master
        self.delay_s = chance.choice((0.0002, 0.002, 0.05))
        # Records may be faster or slower than what else is said: they are larger.
        self._delays_s = {
            "control": self.delay_s,
            "records": self.delay_s * records_take,
        }
        self.is_open = False  # as the worker sees it
        self.ways: dict[tuple[str, str], Way] = {}
        for channel in ("control", "records"):
            self.ways[channel, TO_MASTER] = Way(
                loop, master.machine, lambda message: master.received(worker, message)
            )
            self.ways[channel, TO_WORKER] = Way(loop, worker.machine, worker.received)
        self.cut: set[str] = set()
        # what happens when a message of this kind is next under way
        self.traps: list[tuple[str, Callable[[], None]]] = []
        self._cut_number = 0

    def send(self, channel: str, way: str, message: Any) -> bool:
        """False: the queue is full, or the worker is not connected."""
        line = self.ways[channel, way]
        if not self.is_open or len(line) >= QUEUED:
            return False
        line.send(message, self._delays_s[channel] * self._chance.uniform(0.5, 3))
        for trap in [trap for trap in self.traps if trap[0] == message.type]:
            self.traps.remove(trap)
            self.later(self._chance.uniform(0, 2 * self.delay_s), trap[1])
        return True

    def pump(self) -> None:
        """A way was opened, or a machine goes on."""
        for (_, way), line in self.ways.items():
            line.is_cut = way in self.cut
            line.pump()

    def later(self, seconds: float, function: Callable[..., None], *args: Any) -> None:
        """Call it so much later, on nobody's machine."""
        with self._loop.on(None):
            self._loop.call_after(seconds, Callback(function, args, None))

    def connect(self) -> None:
        """The worker looks for the master until it is there."""
        if self.worker.machine.is_dead or self.is_open:
            return
        reachable = not self.cut and not self.master.machine.is_dead
        if (
            not reachable
            or self.worker.machine.is_stopped
            or self.master.machine.is_stopped
        ):
            self.later(self._chance.uniform(0.1, 2), self.connect)
            return
        self.is_open = True
        with self._loop.on(self.worker.machine):
            self.worker.connected()
        self.later(self.delay_s * 3, self._announce)

    def _announce(self) -> None:
        if self.is_open:
            self.master.connected(self.worker)

    def reset(self) -> None:
        """Both sides see at once that the connections are gone; the worker makes new ones."""
        self._disconnect()
        self.master.closed(self.worker)
        self.later(self._chance.uniform(0.05, 0.5), self.connect)

    def _disconnect(self) -> None:
        self.is_open = False
        for line in self.ways.values():
            line.lose()
        if not self.worker.machine.is_dead:
            with self._loop.on(self.worker.machine):
                self.worker.disconnected()

    def cut_off(self, ways: set[str], seconds: float) -> None:
        """Nothing comes through in these directions for so long. The worker closes its side after a
        while; the master hears nothing."""
        self.cut |= ways
        self._cut_number += 1
        self.pump()
        self.later(NO_ANSWER_S, self._give_up, self._cut_number)
        self.later(seconds, self._heal, self._cut_number)

    def _give_up(self, number: int) -> None:
        if (
            self.cut
            and number == self._cut_number
            and self.is_open
            and not self.worker.machine.is_stopped
        ):
            self._disconnect()
            self.later(self._chance.uniform(0.1, 2), self.connect)

    def _heal(self, number: int) -> None:
        if number == self._cut_number:
            self.cut = set()
            self.pump()

    def worker_died(self) -> None:
        """Its kernel closes its connections."""
        self.is_open = False
        self.later(self.delay_s, self._closed_by_death)

    def _closed_by_death(self) -> None:
        if self.cut:
            return  # the master hears nothing of it
        if self.master.machine.is_stopped:
            # Its kernel keeps what has come, and that the connections are closed.
            self.later(self.delay_s, self._closed_by_death)
            return
        for line in self.ways.values():
            line.pump()
            line.lose()
        self.master.closed(self.worker)
