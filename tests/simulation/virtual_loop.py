"""An event loop of gevent whose time is virtual: when nothing is ready, it moves to the next timer.

Every wait of the code under test is gevent's (sleep, Event, Timeout, Greenlet.join), so all of it
runs unchanged and without waiting. Each callback and timer belongs to a machine: of one that is
stopped they are held, of one that was killed they are dropped. Calls into a thread (disks) run at
once, and take virtual time if the machine's disk is slow.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from heapq import heappop, heappush
from types import ModuleType
from typing import Any

import gevent
from gevent.hub import Hub, get_hub, set_hub

NS = 1_000_000_000
# Rooms whose modules read clocks.
ROOMS = (
    "llama_load.loadgen.swarm.",
    "llama_load.loadgen.run.",
    "llama_load.loadgen.dispatch.",
)
MACHINE = "machine"
# More turns of the loop than this for one instant are a livelock.
MOST_TURNS_AT_ONCE = 100_000
# So many greenlets are started before those that have ended are forgotten.
FORGET_DEAD_AT = 5_000


class Livelock(Exception):
    """Virtual time stands still while the loop turns."""


class Callback:
    """See gevent's ICallback."""

    def __init__(self, function: Any, args: Any, machine: Any) -> None:
        self.callback = function
        self.args = args
        self.machine = machine

    def stop(self) -> None:
        """Do not call it."""
        self.callback = None
        self.args = None

    close = stop

    def __bool__(self) -> bool:
        return self.args is not None

    @property
    def pending(self) -> bool:
        """Whether it will be called."""
        return self.callback is not None


class Timer:
    """See gevent's watcher of a timer."""

    def __init__(self, loop: VirtualLoop, after_s: float) -> None:
        self._loop = loop
        self._after_s = after_s
        self._entry: Callback | None = None
        self.ref = True

    def start(self, callback: Any, *args: Any, **_: Any) -> None:
        """Call it after the timer's seconds."""
        self.stop()
        self._entry = Callback(callback, args, self._loop.machine())
        self._loop.call_after(self._after_s, self._entry)

    def stop(self) -> None:
        """Do not call it."""
        if self._entry is not None:
            self._entry.stop()
            self._entry = None

    close = stop

    @property
    def active(self) -> bool:
        """Whether it was started and has not been called."""
        return self._entry is not None and self._entry.pending

    pending = active

    def __enter__(self) -> Timer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class VirtualLoop:
    """See gevent's ILoop: what of it is used here."""

    default = False
    error_handler: Any = None
    MAXPRI = 0

    def __init__(self) -> None:
        self.now_ns = 1000 * NS
        self.turns = 0
        self.greenlets: dict[
            int, Any
        ] = {}  # that have been started, dead ones for a while
        self._forget_at = FORGET_DEAD_AT
        self._ready: deque[Callback] = deque()
        self._timers: list[tuple[int, int, Callback]] = []
        self._number = 0
        # on whose behalf something is done now; None: the present greenlet's
        self._machine: Any = None

    # ------------------------------------------------------------------ machines

    def machine(self) -> Any:
        """The machine on which the present greenlet runs; None: the world outside."""
        if self._machine is not None:
            return self._machine
        tree = getattr(gevent.getcurrent(), "spawn_tree_locals", None)
        return None if tree is None else tree.get(MACHINE)

    @contextmanager
    def on(self, machine: Any) -> Iterator[None]:
        """What is done in this block is done by that machine."""
        before = self._machine
        self._machine = machine
        try:
            yield
        finally:
            self._machine = before

    def spawn_on(
        self, machine: Any, function: Callable[..., object], *args: Any
    ) -> Any:
        """A greenlet on that machine; those that it spawns are on it, too."""
        greenlet = gevent.Greenlet(function, *args)
        greenlet.spawn_tree_locals = {MACHINE: machine}
        with self.on(machine):
            greenlet.start()
        return greenlet

    # ------------------------------------------------------------------ gevent's interface

    def run_callback(self, function: Any, *args: Any) -> Callback:
        """Call it in the next turn."""
        callback = Callback(function, args, self.machine())
        owner = getattr(function, "__self__", None)
        if isinstance(owner, gevent.Greenlet):
            self.greenlets[id(owner)] = owner
            if len(self.greenlets) > self._forget_at:
                self._forget_dead()
        self._ready.append(callback)
        return callback

    run_callback_threadsafe = run_callback

    def _forget_dead(self) -> None:
        """A run of hours starts a greenlet for each message."""
        alive = {}
        for number, greenlet in self.greenlets.items():
            if not greenlet.dead:
                alive[number] = greenlet
        self.greenlets = alive
        self._forget_at = len(alive) + FORGET_DEAD_AT

    def timer(
        self,
        after: float,
        repeat: float = 0.0,
        ref: bool = True,
        priority: int | None = None,
    ) -> Timer:
        """A timer that has not been started."""
        return Timer(self, after)

    def call_after(self, seconds: float, callback: Callback) -> None:
        """Call it so much later, on its machine's clock."""
        machine = callback.machine
        if machine is not None:
            seconds += machine.late_s()
        self._number += 1
        due_ns = self.now_ns + max(0, round(seconds * NS))
        heappush(self._timers, (due_ns, self._number, callback))

    def update_now(self) -> None:
        """The time is always up to date."""

    def now(self) -> float:
        """The loop's time in s."""
        return self.now_ns / NS

    def destroy(self) -> None:
        """Forget everything."""
        self._ready.clear()
        self._timers.clear()

    def handle_error(self, context: Any, kind: Any, value: Any, traceback: Any) -> None:
        """An exception in a callback: a fault of the code under test."""
        raise value

    def run(self, nowait: bool = False, once: bool = False) -> None:
        """Until nothing is left to do."""
        turns_at_once = 0
        while self._ready or self._timers:
            turns_at_once += 1
            if turns_at_once > MOST_TURNS_AT_ONCE:
                raise Livelock(
                    f"{MOST_TURNS_AT_ONCE} turns at {self.now_ns / NS:.3f} s"
                )
            if not self._ready:
                due_ns, _, callback = heappop(self._timers)
                if due_ns > self.now_ns:
                    turns_at_once = 0
                    self.now_ns = due_ns
                self._call(callback)
            for _ in range(len(self._ready)):
                self._call(self._ready.popleft())

    def _call(self, callback: Callback) -> None:
        machine = callback.machine
        if machine is not None and machine.is_dead:
            callback.stop()
        if machine is not None and machine.is_stopped:
            machine.held.append(callback)
            return
        function = callback.callback
        args = callback.args
        if function is None:
            return
        callback.callback = None
        self.turns += 1
        before = self._machine
        self._machine = machine  # as `on`, which would cost a tenth of the time
        try:
            function(*args)
        finally:
            self._machine = before
            callback.args = None

    def resume(self, machine: Any) -> None:
        """The machine goes on: what was held is called now."""
        self._ready.extend(machine.held)
        machine.held.clear()


class ThreadPool:
    """Calls in threads are made at once; a slow disk takes virtual time before."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def apply(
        self,
        function: Callable[..., Any],
        args: Sequence[Any] = (),
        keywords: Mapping[str, Any] | None = None,
    ) -> Any:
        """See gevent's threadpool."""
        machine = self._loop.machine()
        delay_s = 0.0 if machine is None else machine.disk_delay_s()
        if delay_s:
            gevent.sleep(delay_s)
        return function(*args, **(keywords or {}))


class MachineTime(ModuleType):
    """Python's module `time` as the present machine has it."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__("time")
        self._loop = loop

    def monotonic_ns(self) -> int:
        """The machine's monotonic clock."""
        machine = self._loop.machine()
        return (
            self._loop.now_ns
            if machine is None
            else int(machine.monotonic_ns(self._loop.now_ns))
        )

    def monotonic(self) -> float:
        """The same in s."""
        return self.monotonic_ns() / NS

    def time_ns(self) -> int:
        """The machine's wall clock."""
        machine = self._loop.machine()
        return (
            self._loop.now_ns
            if machine is None
            else int(machine.wall_ns(self._loop.now_ns))
        )

    def time(self) -> float:
        """The same in s."""
        return self.time_ns() / NS

    def strftime(self, form: str) -> str:
        """A date: names of folders have it."""
        return form


@contextmanager
def virtual_time() -> Iterator[VirtualLoop]:
    """A loop for the block. Its greenlets are ended after it, and clocks and loop are the real ones
    again."""
    loop = VirtualLoop()
    before = get_hub()
    hub = Hub(loop)
    hub._threadpool = ThreadPool(loop)
    set_hub(hub)
    machine_time = MachineTime(loop)
    changed = [
        module
        for name, module in sys.modules.items()
        if name.startswith(ROOMS) and getattr(module, "time", None) is time
    ]
    for module in changed:
        module.time = machine_time  # type: ignore[attr-defined]
    try:
        yield loop
    finally:
        _end_all(loop)
        for module in changed:
            module.time = time  # type: ignore[attr-defined]
        set_hub(before)


def _end_all(loop: VirtualLoop) -> None:
    """End what still waits, or Python's garbage collector would do so in the middle of another
    run."""
    for _ in range(5):
        alive = [greenlet for greenlet in loop.greenlets.values() if not greenlet.dead]
        if not alive:
            break
        loop.destroy()
        gevent.killall(alive, block=False)
        for _ in range(100):
            if not loop._ready:
                break
            gevent.sleep(0)
    loop.destroy()
