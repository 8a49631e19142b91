"""One simulated swarm: what it does is chosen by its seed, and what must hold of it is checked at
its end."""

from __future__ import annotations

import contextlib
import io
import logging
import random
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import gevent

from llama_load.loadgen.swarm.messages import short_name
from llama_load.run_folder.observed.record import CANCELLED
from tests.simulation.faults import HARMLESS, KINDS, Fault, drawn_faults, may_lose
from tests.simulation.kept import kept_too_much
from tests.simulation.machines import Machine, Server, spooled_ids
from tests.simulation.master_process import MasterProcess, Plan, WatchedRun
from tests.simulation.network import Link
from tests.simulation.summary_words import wrong_words
from tests.simulation.virtual_loop import (
    NS,
    Callback,
    Livelock,
    VirtualLoop,
    virtual_time,
)
from tests.simulation.worker_process import WorkerProcess

# Virtual seconds: workers connect, the run, 30 s of silence for each of several losses, 60 s of
# Locust's own.
ENDS_WITHIN_S = 600.0
# The share of the seeds whose tasks hold an answer open while greenlets of theirs send more.
HOLD_OPEN = 0.2
# The delay of a worker's records / that of its other messages.
RECORDS_TAKE = (0.1, 1.0, 1.0, 10.0)
# The second run waits long before, which costs half of the time.
SECOND_RUN_EVERY = 4
# It begins so long after the last fault is over: when all that was silent is back, or before.
UNTIL_SECOND_RUN_S = (1.0, 130.0)
# So long after its end a run's workers have heard of it, on a network that works.
ENDS_EVERYWHERE_NS = 2 * NS
# Summaries are computed of some seeds: one takes as long as the run.
SUMMARY_EVERY = 8
Key = tuple[bool, int]


@dataclass(slots=True)
class Story:
    """A seed, its faults, and what did not hold."""

    seed: int
    faults: list[Fault]
    broken: list[str] = field(default_factory=list)
    turns: int = 0
    requests: int = 0
    # those that happened: not those of a message that never came
    struck: list[Fault] = field(default_factory=list)
    # a hash of what was stored, and when it was over: equal in every run of the seed
    trace: int = 0

    def __str__(self) -> str:
        lines = [
            f"seed {self.seed}:",
            *(f"  {fault}" for fault in self.faults),
            *(f"  BROKEN: {line}" for line in self.broken),
        ]
        return "\n".join(lines)


class Errors(logging.Handler):
    """Tracebacks in the log are faults of the code."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep those with a traceback."""
        if record.exc_info:
            self.found.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


class World:
    """The swarm of a seed."""

    def __init__(self, loop: VirtualLoop, seed: int) -> None:
        self.loop = loop
        self.seed = seed
        self.chance = Random(seed)
        self.faults: Sequence[Fault] = ()
        self.struck: list[Fault] = []
        self.overfull: list[str] = []
        self.faults_end_ns = 0  # those that have happened
        self.plan = Plan(self.chance)
        self.most_users = self.plan.users
        self.machines: list[Machine] = []
        self.workers: list[WorkerProcess] = []
        service_s = self.chance.choice((0.05, 0.3, 1.5))
        service_s = max(service_s, self.plan.least_service_s)
        self.server = Server(loop, self.chance, service_s)
        self.master = MasterProcess(
            loop, Machine("master", loop, self.chance), self.chance
        )
        # Drawn apart, so that the other choices of a seed stay what they are.
        self.holds_open = Random(seed + 3 * 10**9).random() < HOLD_OPEN
        for _ in range(self.chance.randint(1, 3)):
            self.add_worker()

    def add_worker(self) -> None:
        """One more worker begins."""
        name = f"w_{len(self.workers):08x}{0:024x}"
        machine = Machine(name, self.loop, self.chance)
        # Drawn apart, so that the other choices of a seed stay what they are.
        chance = Random(f"users of {name}, seed {self.seed}")
        worker = WorkerProcess(
            name, self.loop, machine, self.server, self.master.machine, chance=chance
        )
        worker.holds_open = self.holds_open
        worker.link = Link(
            self.loop,
            self.chance,
            worker,
            self.master,
            records_take=chance.choice(RECORDS_TAKE),
        )
        self.machines.append(machine)
        self.workers.append(worker)
        self.master.workers[name] = worker
        worker.begin()

    def worker(self, fault: Fault) -> WorkerProcess:
        """The worker of a fault."""
        return self.workers[fault.worker % len(self.workers)]

    def after(self, seconds: float, function: Any, *args: Any) -> None:
        """Call it so much later, on nobody's machine."""
        with self.loop.on(None):
            self.loop.call_after(seconds, Callback(function, args, None))

    def go_on(self, machine: Machine) -> None:
        """A stopped machine runs again."""
        machine.is_stopped = False
        self.loop.resume(machine)
        for worker in self.workers:
            if worker.link is not None:
                worker.link.pump()

    def strike(self, fault: Fault) -> None:
        """The fault happens, now or with a message."""
        link = self.worker(fault).link
        act = partial(self._act, fault)
        if fault.message is None or link is None:
            act()
        else:
            link.traps.append((fault.message, act))

    def _act(self, fault: Fault) -> None:
        if not self.master.finished:  # the second run has no faults
            self.struck.append(fault)
            end_ns = self.loop.now_ns + round(fault.seconds * NS)
            self.faults_end_ns = max(self.faults_end_ns, end_ns)
            KINDS[fault.kind](self, fault)

    # ------------------------------------------------------------------ the story

    def live(self, faults: Sequence[Fault]) -> list[str]:
        """Run to the end; what did not hold."""
        self.faults = faults
        gevent.sleep(3)
        self.master.begin(self.plan)
        for fault in faults:
            self.after(fault.at_s, self.strike, fault)
        has_ended = self._wait(1)
        if self.master.machine.is_dead:
            return self._after_the_masters_death()
        if not has_ended:
            return ["the run did not end"]
        broken = broken_of(self, self.master.finished[0], self.server.log)
        if self.seed % SUMMARY_EVERY == 0:
            broken += wrong_words(self, self.master.finished[0], self.server.log)
        return [*broken, *self._unsound_journals(), *self._second_run(), *self.overfull]

    def _wait(self, runs: int) -> bool:
        limit_ns = self.loop.now_ns + round(ENDS_WITHIN_S * NS)
        while len(self.master.finished) < runs and not self.master.machine.is_dead:
            gevent.sleep(0.5)
            self.overfull = self.overfull or kept_too_much(self)
            if self.loop.now_ns > limit_ns:
                return False
        return True

    def _after_the_masters_death(self) -> list[str]:
        """Every worker ends, and what it has sent is on the master's disk or in its spool. (The
        second run is over then, too.)"""
        limit_ns = self.loop.now_ns + round(ENDS_WITHIN_S * NS)
        while any(not worker.machine.is_dead for worker in self.workers):
            gevent.sleep(0.5)
            if self.loop.now_ns > limit_ns:
                return ["the master was killed, and a worker did not end"]
        run = self.master.active
        if run is None:
            return []
        journal = run.prepared.writer.journal
        stored = set(journal.ids()) | spooled_ids(self.machines)
        unwell = {worker.name for worker in self.workers if worker.was_killed}
        lost = [
            request.key
            for request in self.server.log
            if request.request_id not in stored and request.worker not in unwell
        ]
        broken = self._unsound_journals()
        if lost:
            broken.append(f"the master was killed, and requests {lost} are in no spool")
        return broken

    def _unsound_journals(self) -> list[str]:
        journals = [
            spool.journal for machine in self.machines for spool in machine.spools
        ]
        run = self.master.active
        if run is not None:
            journals.append(run.prepared.writer.journal)
        cut = [journal for journal in journals if not journal.is_sound]
        return ["a write that was cut costs other records"] if cut else []

    def _second_run(self) -> list[str]:
        """On the same master, without further faults: every request is recorded once."""
        if self.seed % SECOND_RUN_EVERY:
            return []
        faults_last_s = max(0.0, (self.faults_end_ns - self.loop.now_ns) / NS)
        # Drawn apart, so that the other choices of a seed stay what they are.
        pause_s = Random(self.seed + 2 * 10**9).uniform(*UNTIL_SECOND_RUN_S)
        gevent.sleep(faults_last_s + pause_s)
        alive = [worker for worker in self.workers if not worker.is_over]
        self.server.mode = "well"
        for machine in (self.master.machine, *self.machines):
            machine.is_doomed = False
        if not alive:
            return []
        plan = Plan(self.chance)
        plan.requests = 12
        plan.seconds = None
        plan.rate_rps = None
        plan.max_in_flight = None
        before = len(self.server.log)
        self.master.begin(plan)
        if not self._wait(2):
            return ["the second run did not end"]
        if self.master.machine.is_dead:  # by a fault that came late
            return []
        run = self.master.finished[1]
        ended = {
            key
            for _, key, status, _ in run.prepared.writer.rows
            if status != CANCELLED and not key[0]
        }
        broken = broken_of(self, run, self.server.log[before:])
        if len(ended) != 12:
            broken.append(
                f"second run: {len(ended)} of 12 requests were recorded ({run.controller.end_reason})"
            )
        return broken


def broken_of(world: World, run: WatchedRun, log: Sequence[Any]) -> list[str]:
    """What does not hold of a run that is over."""
    rows = run.prepared.writer.rows
    lost = run.controller.dispatcher.ledger.lost
    complete = {
        spool.about.worker
        for machine in world.machines
        for spool in machine.spools
        if spool.is_complete
    }
    named: Counter[Key] = Counter()
    for gone in lost:
        if short_name(gone.worker) in complete and not gone.gave_up:
            continue  # `report --add` takes these names back: all that was sent is in the spool
        named.update((False, index) for index in gone.possibly_sent)
        named.update((True, index) for index in gone.possibly_sent_warmup)
    ids = Counter(request_id for _, _, _, request_id in rows)
    spooled = spooled_ids(world.machines)
    of_key: dict[Key, list[str]] = {}
    for _, key, status, request_id in rows:
        if status != CANCELLED:
            of_key.setdefault(key, []).append(request_id)
    broken = [
        f"record {request_id} is stored {count} times"
        for request_id, count in ids.items()
        if count > 1
    ]
    broken += [
        f"request {key} is recorded {len(found)} times"
        for key, found in of_key.items()
        if len(found) > 1
    ]

    unrecorded: Counter[Key] = Counter()
    added_later: set[Key] = set()
    for request in log:
        if request.request_id in spooled:
            added_later.add(request.key)
        elif request.request_id not in ids:
            unrecorded[request.key] += 1
    for key, count in unrecorded.items():
        if named[key] < 1:
            broken.append(
                f"request {key} was sent {count} times without a record or a name"
            )

    if (
        run.controller.end_reason == "complete"
        and world.plan.requests is not None
        and run is world.master.finished[0]
    ):
        missing = [
            index
            for index in range(world.plan.requests)
            if (False, index) not in of_key
            and (False, index) not in added_later
            and not named[False, index]
        ]
        if len(missing) != run.prepared.writer.manifest.dropped:
            broken.append(
                f"complete, and requests {missing} are neither recorded, named nor dropped"
            )
    if not may_lose(world.faults) and (named or unrecorded):
        broken.append(
            f"nothing that loses requests happened, and {sorted(named)} are named, {sorted(unrecorded)} have no record"
        )
    if all(fault.kind in HARMLESS for fault in world.struck):
        expected = "complete" if run.prepared.load.run_time_s is None else "time"
        if run.controller.end_reason != expected:
            broken.append(
                f"nothing ended the run but {run.controller.end_reason}, and not {expected}"
            )
        if not rows:
            broken.append("nothing was recorded")
    number = world.master.finished.index(run)
    late = [
        request.key
        for request in log
        if request.begun_ns > world.master.stopped_ns[number] + ENDS_EVERYWHERE_NS
    ]
    if late and not any(fault.delays for fault in world.faults):
        broken.append(f"requests {late} were begun after the end")
    most = most_at_once(log)
    gave_up = sum(
        len(gone.possibly_sent) + len(gone.possibly_sent_warmup)
        for gone in lost
        if gone.gave_up
    )
    asked = world.plan.max_in_flight or world.most_users
    is_limited = world.plan.rate_rps is None or world.plan.max_in_flight is not None
    is_first = run is world.master.finished[0]
    if is_limited and is_first and most > asked + run.ever_named + gave_up:
        broken.append(f"{most} requests in flight, {asked} were asked for")
    return broken


def most_at_once(log: Sequence[Any]) -> int:
    """The most requests in flight at the server."""
    steps = [(request.begun_ns, 1) for request in log]
    steps += [(request.ended_ns, -1) for request in log if request.ended_ns is not None]
    level = most = 0
    for _, step in sorted(steps):
        level += step
        most = max(most, level)
    return most


def trace_of(world: World) -> int:
    """A checksum of what was stored, in its order, and of the time at the end."""
    rows = [run.prepared.writer.rows for run in world.master.finished]
    sent = [
        (request.key, request.begun_ns, request.ended_ns)
        for request in world.server.log
    ]
    return zlib.crc32(repr((rows, sent, world.loop.now_ns)).encode())


def run_seed(seed: int, faults: Sequence[Fault] | None = None) -> Story:
    """The story of a seed, with its own faults or with these."""
    random.seed(seed)
    errors = Errors()
    logger = logging.getLogger()
    handlers = logger.handlers
    logger.handlers = [errors]
    out = io.StringIO()
    with contextlib.redirect_stderr(out), virtual_time() as loop:
        world = World(loop, seed)
        if faults is None:
            lasts_s = world.plan.lasts_s(world.server.service_s)
            faults = drawn_faults(Random(seed + 10**9), lasts_s)
        story = Story(seed, list(faults))
        try:
            story.broken = world.live(story.faults)
            story.trace = trace_of(world)
            story.requests = len(world.server.log)
            story.struck = world.struck
        except Livelock as error:
            story.broken.append(str(error))
        except gevent.exceptions.LoopExit:
            story.broken.append("nobody does anything any more")
        story.turns = loop.turns
    logger.handlers = handlers
    story.broken += errors.found
    if "Traceback" in out.getvalue():
        story.broken.append(out.getvalue()[out.getvalue().index("Traceback") :][:2500])
    return story


def shrunk(story: Story) -> Story:
    """The same seed with as few of its faults as still break it."""
    faults = list(story.faults)
    for fault in list(faults):
        fewer = [other for other in faults if other is not fault]
        smaller = run_seed(story.seed, fewer)
        if smaller.broken:
            faults, story = fewer, smaller
    return story
