"""Faults of a simulated swarm: each is one act at one time, drawn from the seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from llama_load.loadgen.swarm import messages
from tests.simulation.network import TO_MASTER, TO_WORKER, WAYS
from tests.simulation.virtual_loop import NS

if TYPE_CHECKING:
    from tests.simulation.world import World

# Seconds of silence and of standing still: below and above the 30 s after which a worker is lost.
GAPS_S = (0.5, 3.0, 10.0, 16.0, 28.0, 40.0)
LOSING = {
    "kill -9",
    "kill -9 of the master",
    "kill -9 in a write",
    "kill -9 of the master in a write",
}
SILENT = {
    "process stopped",
    "network cut",
    "network cut to the master",
    "network cut to the worker",
    "master stopped",
    "SIGTERM twice to a worker",
}
CLOSING = {"connections reset", "connections flap"}
# A run goes on with these until all is done.
HARMLESS = {
    "process starved",
    "master starved",
    "users come and go",
    "users edited",
    "worker joins",
    "master's disk full",
    "master's disk slow",
    "worker's disk full",
    "worker's disk slow",
    "wall clock stepped",
    "server slow",
    "server fails",
}
LONGEST_PATIENCE_S = 10.0
DELAYING = SILENT | CLOSING | {"process starved", "master starved"}


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of fault, when, on which worker (by place), for how long. With a `message` it happens
    when the next one of that kind is under way."""

    kind: str
    at_s: float
    worker: int
    seconds: float
    message: str | None = None

    @property
    def loses_alone(self) -> bool:
        """Whether requests may be lost by it alone: their worker is gone, or silent for as long as
        that takes."""
        return self.kind in LOSING or (
            self.kind in SILENT and self.seconds > LONGEST_PATIENCE_S
        )

    @property
    def delays(self) -> bool:
        """Whether messages or processes wait because of it."""
        return self.kind in DELAYING

    def __str__(self) -> str:
        when = "" if self.message is None else f" with the next {self.message}"
        return f"{self.at_s:6.2f} s  {self.kind}{when}, worker {self.worker}, {self.seconds:g} s"


NETWORK = (
    "connections reset",
    "connections flap",
    "network cut",
    "network cut to the master",
    "network cut to the worker",
)
LOCUSTS = ("spawn", "stop", "client_stopped", "client_ready", "ack")
MESSAGES = (*messages.TO_WORKER, *messages.TO_MASTER, *LOCUSTS)
# Virtual seconds after the beginning of the run; its end takes some more.
EARLIEST_S = 0.0
LATEST_S = 20.0
END_S = 1.0
# How many faults a seed has: one alone shows the most, because it excuses the least.
COUNTS = (0, 1, 1, 1, 2, 2, 2, 3, 4, 6)


def may_lose(faults: Sequence[Fault]) -> bool:
    """Whether requests may be lost by these faults. A connection that is closed while there is no
    way to make another one looks like a process that was killed: the master waits for a second."""
    kinds = {fault.kind for fault in faults}
    return any(fault.loses_alone for fault in faults) or bool(
        kinds & CLOSING and kinds & SILENT
    )


def drawn_faults(chance: Random, lasts_s: float) -> list[Fault]:
    """The faults of a seed, during its run and its end; half of the time they come close
    together."""
    until_s = min(lasts_s + END_S, LATEST_S)
    centre_s = chance.uniform(EARLIEST_S, until_s)
    is_burst = chance.random() < 0.5
    faults = []
    for _ in range(chance.choice(COUNTS)):
        at_s = chance.uniform(EARLIEST_S, until_s)
        if is_burst:
            at_s = centre_s + chance.uniform(0, 1)
        kind = chance.choice(NETWORK if chance.random() < 0.3 else tuple(KINDS))
        message = chance.choice(MESSAGES) if chance.random() < 0.5 else None
        faults.append(
            Fault(
                kind,
                round(at_s, 3),
                chance.randrange(4),
                chance.choice(GAPS_S),
                message,
            )
        )
    return sorted(faults, key=lambda fault: fault.at_s)


def _kill(world: World, fault: Fault) -> None:
    world.worker(fault).kill()


def _stop_process(world: World, fault: Fault) -> None:
    machine = world.worker(fault).machine
    machine.is_stopped = True
    world.after(fault.seconds, world.go_on, machine)


def _starve(world: World, fault: Fault) -> None:
    machine = world.worker(fault).machine
    machine.starved_s = 1.0
    world.after(fault.seconds, setattr, machine, "starved_s", 0.0)


def _reset(world: World, fault: Fault) -> None:
    worker = world.worker(fault)
    if worker.link is not None and worker.link.is_open:
        worker.link.reset()


def _cut(ways: set[str]) -> Callable[[World, Fault], None]:
    def act(world: World, fault: Fault) -> None:
        link = world.worker(fault).link
        if link is not None:
            link.cut_off(ways, fault.seconds)

    return act


def _flap(world: World, fault: Fault) -> None:
    """Connections are reset again and again for a while."""
    _reset(world, fault)
    at_s = 0.0
    while at_s < min(fault.seconds, 10.0):
        at_s += world.chance.uniform(0.1, 1.5)
        world.after(at_s, _reset, world, fault)


def _users_come_and_go(world: World, fault: Fault) -> None:
    """Edited ten times within two seconds."""
    for number in range(10):
        world.after(
            0.2 * number, _set_users, world, 1 + (number * 3 + fault.worker) % 6
        )


def _join(world: World, _fault: Fault) -> None:
    world.add_worker()


def _leave(world: World, fault: Fault) -> None:
    worker = world.worker(fault)
    if not worker.machine.is_dead:
        with world.loop.on(worker.machine):
            worker.signals.receive()


def _leave_at_once(world: World, fault: Fault) -> None:
    _leave(world, fault)
    world.after(min(fault.seconds, 3.0), _leave, world, fault)


def _interrupt(world: World, _fault: Fault) -> None:
    world.loop.spawn_on(world.master.machine, world.master.interrupt, 1)


def _interrupt_twice(world: World, fault: Fault) -> None:
    _interrupt(world, fault)
    world.after(
        min(fault.seconds, 3.0),
        lambda: world.loop.spawn_on(world.master.machine, world.master.interrupt, 2),
    )


def _edit_users(world: World, fault: Fault) -> None:
    _set_users(world, 1 + fault.worker * 2)


def _set_users(world: World, users: int) -> None:
    if world.master.active is not None and not world.master.finished:
        world.most_users = max(world.most_users, users)
        world.loop.spawn_on(world.master.machine, world.master.start, users, users)


def _master_disk_full(world: World, fault: Fault) -> None:
    world.master.machine.is_disk_full = True
    world.after(fault.seconds, setattr, world.master.machine, "is_disk_full", False)


def _master_disk_slow(world: World, fault: Fault) -> None:
    world.master.machine.disk_s = 2.0
    world.after(fault.seconds, setattr, world.master.machine, "disk_s", 0.0)


def _worker_disk_full(world: World, fault: Fault) -> None:
    world.worker(fault).machine.is_disk_full = True


def _worker_disk_slow(world: World, fault: Fault) -> None:
    world.worker(fault).machine.disk_s = 3.0


def _master_stands(world: World, fault: Fault) -> None:
    machine = world.master.machine
    machine.is_stopped = True
    world.after(min(fault.seconds, 16.0), world.go_on, machine)


def _master_starves(world: World, fault: Fault) -> None:
    world.master.machine.starved_s = 0.5
    world.after(fault.seconds, setattr, world.master.machine, "starved_s", 0.0)


def _kill_master(world: World, _fault: Fault) -> None:
    world.master.die()


def _tear(world: World, fault: Fault) -> None:
    """The next write to the worker's disk is cut at any byte, by a kill -9."""
    world.worker(fault).machine.is_doomed = True


def _tear_master(world: World, _fault: Fault) -> None:
    world.master.machine.is_doomed = True


def _wall_clock_steps(world: World, fault: Fault) -> None:
    world.worker(fault).machine.wall_ns_ahead += 7200 * NS


def _server(mode: str) -> Callable[[World, Fault], None]:
    def act(world: World, fault: Fault) -> None:
        world.server.mode = mode
        world.after(min(fault.seconds, 10.0), setattr, world.server, "mode", "well")

    return act


KINDS: dict[str, Callable[[World, Fault], None]] = {
    "kill -9": _kill,
    "process stopped": _stop_process,
    "process starved": _starve,
    "connections reset": _reset,
    "connections flap": _flap,
    "users come and go": _users_come_and_go,
    "network cut": _cut(set(WAYS)),
    "network cut to the master": _cut({TO_MASTER}),
    "network cut to the worker": _cut({TO_WORKER}),
    "worker joins": _join,
    "SIGTERM to a worker": _leave,
    "SIGTERM twice to a worker": _leave_at_once,
    "Ctrl-C": _interrupt,
    "Ctrl-C twice": _interrupt_twice,
    "users edited": _edit_users,
    "master's disk full": _master_disk_full,
    "master's disk slow": _master_disk_slow,
    "worker's disk full": _worker_disk_full,
    "worker's disk slow": _worker_disk_slow,
    "master stopped": _master_stands,
    "master starved": _master_starves,
    "kill -9 of the master": _kill_master,
    "kill -9 in a write": _tear,
    "kill -9 of the master in a write": _tear_master,
    "wall clock stepped": _wall_clock_steps,
    "server slow": _server("slow"),
    "server fails": _server("fails"),
    "server hangs": _server("hangs"),
}
