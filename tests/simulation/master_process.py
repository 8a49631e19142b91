"""The master's process: the real `MasterRun`, under a stand-in for Locust's master runner and for
the parts of our lifecycle that need a server and a disk."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import gevent
import numpy as np
from gevent.queue import Queue
from locust.rpc import Message
from locust.runners import (
    STATE_INIT,
    STATE_MISSING,
    STATE_RUNNING,
    STATE_STOPPED,
    STATE_STOPPING,
)

from llama_load.ground.units import NS_PER_S
from llama_load.loadgen.run.end_watchers import IdleWatcher
from llama_load.loadgen.run.run_clock import RunClock
from llama_load.loadgen.schedule.segments import LoadModel, Segment
from llama_load.loadgen.schedule.stages import Stage
from llama_load.loadgen.swarm import messages
from llama_load.loadgen.swarm.master import MasterRun
from llama_load.loadgen.swarm.message_guard import check_body
from llama_load.loadgen.swarm.presence import CLOSED_FOR_S, LOST_AFTER_S, NO_HEARTBEAT
from llama_load.loadgen.swarm.rebalancing import REPEAT_EVERY_S
from llama_load.loadgen.swarm.sockets import BACK_WITHIN_S
from llama_load.loadgen.swarm.unanswered_spawns import UnansweredSpawns
from llama_load.loadgen.swarm.user_scaler import UserScaler
from llama_load.loadgen.swarm.worker_state import WorkerState
from llama_load.loadgen.users.session_tokens import NO_SESSIONS
from llama_load.loadgen.wire.request import Timeouts
from llama_load.loadgen.workloads.prompt_plan import Traffic
from llama_load.run_folder import Manifest
from llama_load.servers.address import parse_url
from llama_load.servers.balance import ROUND_ROBIN
from llama_load.servers.body import BodyOptions
from llama_load.servers.target import Target
from llama_load.servers.weighted_choice import ONE_FOR_ALL
from tests.simulation.machines import Machine, Writer
from tests.simulation.network import TO_WORKER
from tests.simulation.virtual_loop import VirtualLoop
from tests.simulation.worker_process import WORKLOAD, User, WorkerProcess

LOOK_EVERY_S = 0.25
# More requests of a seed take longer, and show no more.
MOST_REQUESTS = 80
# Locust's time for all workers to stop.
STOPPED_WITHIN_S = 60.0


class Plan:
    """What a run is to do: users, requests or seconds, arrivals a second (None: a closed loop), the
    wait at its end."""

    def __init__(self, chance: Random) -> None:
        self.users = chance.randint(1, 6)
        self.requests: int | None = chance.randint(5, 40)
        self.seconds: float | None = None
        if chance.random() < 0.3:
            self.requests = None
            self.seconds = chance.uniform(2, 15)
        self.rate_rps = (
            chance.uniform(2, 10)
            if self.requests is not None and chance.random() < 0.35
            else None
        )
        # further arrivals are dropped
        is_limited = (
            self.rate_rps is not None
            and self.requests is not None
            and self.requests % 3 == 0
        )
        self.max_in_flight = self.users if is_limited else None
        self.wait_at_end_s = chance.choice((0.0, 0.0, 10.0))
        self.warmup = chance.choice((0, 0, 3))

    @property
    def least_service_s(self) -> float:
        """How long the server takes at least, so that a run by time has no more than
        `MOST_REQUESTS`."""
        if self.seconds is None:
            return 0.0
        return self.users * self.seconds / MOST_REQUESTS

    def lasts_s(self, service_s: float) -> float:
        """About how long the run takes without faults."""
        if self.seconds is not None:
            return self.seconds
        assert self.requests is not None
        requests = self.requests + self.warmup
        lasts_s = requests * service_s / self.users
        if self.rate_rps is not None:
            lasts_s = max(lasts_s, requests / self.rate_rps)
        return lasts_s

    def segment(self, chance: Random) -> Segment:
        """See `Segment`."""
        if self.rate_rps is None or self.requests is None:
            return Segment(
                stages=(Stage(name="all"),), total=self.requests, seconds=self.seconds
            )
        gaps_s = [chance.expovariate(self.rate_rps) for _ in range(self.requests)]
        scheduled_s = np.cumsum(np.array(gaps_s))
        places = np.zeros(self.requests, np.int64)
        stages = (Stage(name="all", rate_rps=self.rate_rps),)
        return Segment(
            stages=stages,
            total=self.requests,
            seconds=None,
            scheduled_s=scheduled_s,
            stage_index=places,
            max_in_flight=self.max_in_flight,
        )


def prepared_run(plan: Plan, machine: Machine, chance: Random, writer: Any) -> Any:
    """What `prepare` would make of the plan."""
    manifest = Manifest(
        version="1",
        date="",
        workload=WORKLOAD,
        command=[],
        options={},
        endpoint="chat",
        backend="",
        model=None,
        users=plan.users,
        num_prompts=plan.requests,
    )
    segment = plan.segment(chance)
    goals = SimpleNamespace(abort_if=(), until=None, end_below=None)
    options = SimpleNamespace(
        hang_ups=None,
        probe_rate_rps=None,
        models=ONE_FOR_ALL,
        adapters=ONE_FOR_ALL,
        session_headers=NO_SESSIONS,
        traffic=Traffic(),
        timeouts=Timeouts(),
        save_texts=False,
        retries=0,
        client_priority="normal",
        wait_at_end_s=plan.wait_at_end_s,
        balance=ROUND_ROBIN,
        goals=goals,
        tls=None,
    )
    load = SimpleNamespace(
        segments=[segment],
        warmup=plan.warmup,
        filling=0,
        model=LoadModel(
            rate_rps=plan.rate_rps,
            max_in_flight=plan.max_in_flight,
            drops=plan.max_in_flight is not None,
        ),
        weights={WORKLOAD: 1.0},
        run_time_s=plan.seconds,
        users=plan.users,
    )
    return SimpleNamespace(
        options=options,
        load=load,
        targets=[Target(parse_url("http://127.0.0.1:1"), "openai", None)],
        body_options=BodyOptions(),
        plans={},
        local_servers=[],
        ends_matter=False,
        checks_answers=False,
        beginning=None,
        probes=[],
        writer=writer(machine, manifest),
    )


class WatchedRun(MasterRun):
    """Counts the requests that were named as possibly sent, for however long: the names of a worker
    that comes back are taken away again with its records."""

    ever_named = 0

    def _lose(
        self,
        client_id: str,
        worker: WorkerState,
        *,
        may_return: bool,
        why: str | None = None,
    ) -> None:
        super()._lose(client_id, worker, may_return=may_return, why=why)
        gone = self.controller.dispatcher.ledger.lost[-1]
        self.ever_named += len(gone.possibly_sent) + len(gone.possibly_sent_warmup)


class Node:
    """See Locust's WorkerNode."""

    def __init__(self, name: str) -> None:
        self.id = name
        self.state = STATE_INIT
        self.heartbeat = LOST_AFTER_S
        self.cpu_usage = 0.0
        self.users = 0


class MasterProcess:
    """The master, and as Locust's runner its state."""

    writer = Writer  # of run folders

    def __init__(self, loop: VirtualLoop, machine: Machine, chance: Random) -> None:
        self.loop = loop
        self.machine = machine
        self.workers: dict[str, WorkerProcess] = {}
        self.active: WatchedRun | None = None
        self.finished: list[WatchedRun] = []
        self.stopped_ns: list[int] = []  # when each run was
        self._chance = chance
        self._inbox: Any = Queue()
        self._connected: set[str] = set()
        machine.kill = self.die
        self._closed_s: dict[str, float] = {}
        self._accepted_s = 0.0
        self._spawns_sent = 0
        self._spawns = UnansweredSpawns(self._now_s)
        # As Locust's runner:
        self.clients: dict[str, Node] = {}
        self.state = STATE_INIT
        self.target_user_count = 0
        self.environment: Any = SimpleNamespace(
            runner=self,
            user_classes=[User],
            parsed_options=SimpleNamespace(headless=True, autostart=False),
            web_ui=None,
            shape_class=None,
        )
        for function in (self._listen, self._beat, self._look, self._repeat):
            loop.spawn_on(machine, function)

    # ------------------------------------------------------------------ runs

    def begin(self, plan: Plan) -> None:
        """Start a run."""
        self.loop.spawn_on(self.machine, self._begin, plan)

    def _begin(self, plan: Plan) -> None:
        prepared = prepared_run(plan, self.machine, self._chance, self.writer)

        def watchers(prepared: Any, host: Any, run: Any) -> list[Any]:
            return [IdleWatcher(run, host.sending, prepared.load.run_time_s, 10.0)]

        self.target_user_count = plan.users
        monotonic_ns = self.machine.monotonic_ns
        clock = RunClock(lambda: monotonic_ns(self.loop.now_ns))
        self.active = WatchedRun(
            self.environment, prepared, UserScaler(self.environment), clock, watchers
        )
        self.active.open()
        self.state = STATE_RUNNING
        self.start(plan.users, plan.users)

    def die(self) -> None:
        """The process is gone, and its kernel closes its connections."""
        self.machine.is_dead = True
        for worker in self.workers.values():
            if worker.link is not None and worker.link.is_open:
                worker.link.reset()

    def interrupt(self, count: int) -> None:
        """Ctrl-C: the first ends the load, the second the wait for what is in flight."""
        if self.active is not None and (
            count > 1 or self.active.controller.end_reason is not None
        ):
            self.active.end_wait()
        self.quit("interrupted")

    def quit(self, reason: str = "stopped") -> None:
        """See Locust."""
        self.stop(reason)

    def stop(self, reason: str = "stopped") -> None:
        """See Locust: what `Lifecycle` does at its events is here."""
        run = self.active
        if run is None or self.state in (STATE_INIT, STATE_STOPPED, STATE_STOPPING):
            return
        self.state = STATE_STOPPING
        self.stopped_ns.append(self.loop.now_ns)
        run.stopping(reason)
        for name in list(self.clients):
            self._send(Message("stop", None, name))
        with gevent.Timeout(STOPPED_WITHIN_S, False):
            while self.user_count:
                gevent.sleep(1)
        run.prepared.health = run.collect()
        run.controller.close(run.prepared.health)
        self.finished.append(run)
        self.active = None
        self.state = STATE_STOPPED

    # ------------------------------------------------------------------ as Locust's master runner

    @property
    def user_count(self) -> int:
        """Users that workers have reported."""
        return sum(
            node.users for node in self.clients.values() if node.state == STATE_RUNNING
        )

    @property
    def worker_count(self) -> int:
        """Workers that are not missing."""
        return sum(node.state != STATE_MISSING for node in self.clients.values())

    def start(self, users: int, _rate: float) -> None:
        """Spread the users over the workers."""
        self.target_user_count = users
        there = [
            name for name, node in self.clients.items() if node.state != STATE_MISSING
        ]
        for place, name in enumerate(there):
            share = users // len(there) + (place < users % len(there))
            self._spawns_sent += 1
            self._send(
                Message("spawn", {"number": self._spawns_sent, "users": share}, name)
            )

    def _spread(self) -> None:
        if self.state == STATE_RUNNING:
            self.start(self.target_user_count, 0)

    def send_message(self, kind: str, data: Any = None, client_id: str = "") -> None:
        """See Locust."""
        self._send(Message(kind, data, client_id))

    def _send(self, message: Message) -> None:
        self._spawns.sent(message)
        worker = self.workers.get(message.node_id)
        if (
            worker is None
            or self.machine.is_dead
            or message.node_id not in self._connected
        ):
            return
        assert worker.link is not None
        worker.link.send("control", TO_WORKER, Message.unserialize(message.serialize()))

    def _listen(self) -> None:
        while True:
            name, message = self._inbox.get()
            self._handle(name, message)

    def _handle(self, name: str, message: Message) -> None:
        self._spawns.received(message)
        kind = message.type
        node = self.clients.get(name)
        if kind == "client_ready":
            self._send(Message("ack", None, name))
            self.clients[name] = Node(name)
            self._spread()
        elif kind == "heartbeat" and node is not None:
            was_missing = node.state == STATE_MISSING
            node.heartbeat = LOST_AFTER_S
            node.state = message.data["state"]
            node.users = message.data["users"]
            if was_missing:
                self._spread()
        elif kind in ("client_stopped", "quit") and node is not None:
            del self.clients[name]
            if kind == "quit" and not self.worker_count:
                gevent.spawn(self.stop)
            else:
                self._spread()
        elif kind in messages.TO_MASTER:
            check_body(kind, message.data)
            if self.active is not None:
                self.active.on_message(kind, name, message.data)

    def _beat(self) -> None:
        while True:
            gevent.sleep(1)
            for node in list(self.clients.values()):
                if node.heartbeat < 0 and node.state != STATE_MISSING:
                    node.state = STATE_MISSING
                    node.users = 0
                    if self.worker_count:
                        self._spread()
                    else:
                        gevent.spawn(self.stop)
                else:
                    node.heartbeat -= 1

    def _look(self) -> None:
        """As `Presence`: of workers on other machines."""
        while True:
            gevent.sleep(LOOK_EVERY_S)
            for name, node in list(self.clients.items()):
                closed = (
                    self._closed_for_s(name) > CLOSED_FOR_S and self.worker_count > 1
                )
                node.llama_load_closed = closed  # type: ignore[attr-defined]
                if closed:
                    node.heartbeat = NO_HEARTBEAT

    def _repeat(self) -> None:
        """As `Rebalancer`: messages that start users, where they were lost."""
        while True:
            gevent.sleep(REPEAT_EVERY_S)
            if self.state == STATE_RUNNING:
                for message in self._spawns.overdue(self._is_there):
                    self._send(message)

    def _is_there(self, name: str) -> bool:
        node = self.clients.get(name)
        return node is not None and node.state != STATE_MISSING

    def _now_s(self) -> float:
        return self.machine.monotonic_ns(self.loop.now_ns) / NS_PER_S

    def _closed_for_s(self, name: str) -> float:
        since_s = self._closed_s.get(name)
        if since_s is None:
            return 0.0
        return self._now_s() - max(
            since_s, min(self._accepted_s, since_s + BACK_WITHIN_S)
        )

    # ------------------------------------------------------------------ its network

    def received(self, worker: WorkerProcess, message: Message) -> None:
        """A message of a worker has come."""
        self._connected.add(worker.name)
        copy = Message.unserialize(message.serialize())
        with self.loop.on(self.machine):
            self._inbox.put_nowait((worker.name, copy))

    def connected(self, worker: WorkerProcess) -> None:
        """A worker has connected, perhaps again."""
        self._connected.add(worker.name)
        self._closed_s.pop(worker.name, None)

    def closed(self, worker: WorkerProcess) -> None:
        """Its connections are gone."""
        self._connected.discard(worker.name)
        self._closed_s[worker.name] = self._now_s()
