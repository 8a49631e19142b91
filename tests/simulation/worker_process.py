"""A worker's process: the real `WorkerLifecycle`, under a stand-in for Locust's worker runner and
its users."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from operator import attrgetter
from random import Random
from types import SimpleNamespace
from typing import Any

import gevent
from gevent.pool import Group
from gevent.queue import Queue
from locust.event import EventHook
from locust.exception import StopUser
from locust.rpc import Message
from locust.runners import STATE_INIT, STATE_RUNNING, STATE_STOPPED

from llama_load.ground.units import NS_PER_S
from llama_load.loadgen.run.arrival_users import ArrivalUsers
from llama_load.loadgen.run.lease_client import LeaseClient
from llama_load.loadgen.run.sender import SenderConfig, SenderRuntime
from llama_load.loadgen.swarm import messages
from llama_load.loadgen.swarm.unanswered_ready import UnansweredReady
from llama_load.loadgen.swarm.worker import WorkerLifecycle, WorkerParts
from llama_load.loadgen.users.session import OpenRecord
from llama_load.run_folder.observed.other_requests import OtherTraffic
from llama_load.run_folder.observed.worker_health import WorkerHealth
from tests.simulation.machines import (
    Connections,
    Exchange,
    Machine,
    Request,
    Server,
    VirtualSpool,
    record_of,
)
from tests.simulation.network import TO_MASTER, Link
from tests.simulation.virtual_loop import VirtualLoop

HEARTBEAT_S = 1.0
# Sent by greenlets of a task that holds an answer open.
INNER_REQUESTS = 2
WORKLOAD = "chat"


class VirtualSender(SenderRuntime):
    """The sender of a worker, without the machine's sensors: its end is the real one."""

    def __init__(
        self,
        environment: Any,
        worker: str,
        config: SenderConfig,
        link: Any,
        heard: Any,
        *,
        tls: Any,
    ) -> None:
        idle: Any = SimpleNamespace(
            start=lambda: None,
            stop=lambda: None,
            give_back=lambda: None,
            adapt=lambda: None,
            taken=None,
            health=lambda: WorkerHealth(worker),
            close=OtherTraffic,
        )
        self.monitor = self._others = self._priority = idle
        self._users = ArrivalUsers(environment)
        self.lease_client = LeaseClient(
            link=link,
            settings=config.settings,
            targets=config.targets,
            beginning=None,
            measuring=idle.start,
            more_users=self._users.add,
            heard=heard,
            sleep_until=self._sleep_until,
        )
        self._overdue = gevent.spawn(self._see_to_overdue)
        self._waits_no_more = False
        self._transport = environment.connections
        self._now_ns = environment.process.now_ns

    def _sleep_until(self, until_ns: int) -> None:
        gevent.sleep(max(0, until_ns - self._now_ns()) / NS_PER_S)


class Signals:
    """See `llama_load.loadgen.swarm.signals`: those of one process."""

    def __init__(self, quit_process: Callable[[], None]) -> None:
        self.count = 0
        self._quit = quit_process
        self._listener: Callable[[int], None] | None = None
        self._is_thrown = False

    def listen(self, listener: Callable[[int], None]) -> None:
        """See `Signals.listen`."""
        self._listener = listener

    def throw(self, _: BaseException) -> None:
        """Locust's main greenlet ends the process in order."""
        if not self._is_thrown:
            self._is_thrown = True
            gevent.spawn(self._quit)

    def receive(self) -> None:
        """Ctrl-C or SIGTERM."""
        self.count += 1
        if self._listener is not None:
            gevent.spawn(self._listener, self.count)


class Watch:
    """See `MasterWatch`: a worker on the master's machine sees its end at once."""

    def __init__(self, master: Machine, gone: Callable[[str], None]) -> None:
        self._master = master
        self._gone = gone
        gevent.spawn(self._watch)

    def introduce(self, _: dict[str, Any]) -> None:
        """The master is known."""

    def look(self) -> bool:
        """Whether the master has ended."""
        return self._master.is_dead

    def _watch(self) -> None:
        while not self.look():
            gevent.sleep(0.5)
        self._gone("the master is gone; this worker ends")


class Client:
    """See `llama_load.loadgen.swarm.sockets.Client`."""

    def __init__(self, process: WorkerProcess) -> None:
        self._process = process
        self._waiting: list[Message] = []
        self.ready = UnansweredReady(lambda: process.now_ns() / NS_PER_S)
        self.is_connected = False
        self.connections = 0
        self.closed_since_s: float | None = None

    def send(self, message: Message) -> None:
        """See `Client.send`."""
        if message.type == "heartbeat":
            if not self.is_connected:
                return
            ready = self.ready.overdue()
            if ready is not None:
                self.send(ready)
        self.ready.sent(message)
        self._waiting.append(message)
        self.send_waiting()

    def send_now(self, message: Message) -> bool:
        """See `Client.send_now`."""
        return (
            self.is_connected
            and self.send_waiting()
            and self._process.send("control", message)
        )

    def send_batch(self, header: bytes, data: bytes) -> bool:
        """See `Client.send_batch`."""
        body = messages.unpack_batch([header, data])
        return self.is_connected and self._process.send(
            "records", Message(messages.RECORDS, body, self._process.name)
        )

    def send_waiting(self) -> bool:
        """Send what waited for a connection."""
        while (
            self._waiting
            and self.is_connected
            and self._process.send("control", self._waiting[0])
        ):
            self._waiting.pop(0)
        return not self._waiting


class WorkerProcess:
    """One worker."""

    def __init__(
        self,
        name: str,
        loop: VirtualLoop,
        machine: Machine,
        server: Server,
        master_machine: Machine,
        *,
        chance: Random,
    ) -> None:
        self.name = name
        self.loop = loop
        self.machine = machine
        self.server = server
        self.link: Link | None = None
        self.requests = 0
        self._chance = chance
        self._started_users = 0
        self.holds_open = False  # its users hold answers open while they send more
        self.is_over = False
        self.was_killed = False
        self._master_machine = master_machine
        self._users = Group()
        self._inbox: Any = Queue()
        self._handlers: dict[str, tuple[Any, bool]] = {}
        self._newest_spawn = 0
        machine.kill = self.kill
        self.lifecycle: WorkerLifecycle | None = None
        self.client = Client(self)
        self.signals = Signals(self.quit)
        # As Locust's runner:
        self.client_id = name
        self.worker_state = STATE_INIT
        self.state = STATE_INIT
        self.last_heartbeat_timestamp = None
        self.environment: Any = SimpleNamespace(
            runner=self,
            events=SimpleNamespace(
                test_start=EventHook(),
                test_stop=EventHook(),
                quitting=EventHook(),
                llm_request=EventHook(),
                request=EventHook(),
            ),
            stats=SimpleNamespace(entries={}),
            parsed_options=SimpleNamespace(),
            user_classes=[User],
            available_user_classes={"User": User},
            process=self,
            connections=Connections(),
            llama_load=None,
            process_exit_code=None,
        )

    def begin(self) -> None:
        """Start the process, and look for the master."""
        self.loop.spawn_on(self.machine, self._main)
        assert self.link is not None
        self.link.connect()

    def _main(self) -> None:
        parts = WorkerParts(
            sender=VirtualSender,
            spool=lambda path, about: VirtualSpool(path, about, self.machine),  # type: ignore[arg-type, return-value]
            settle=lambda: None,
        )
        gevent.spawn(self._heartbeat)
        self.client.send(Message("client_ready", "2", self.name))
        self.lifecycle = WorkerLifecycle(
            self.environment,
            self.signals,  # type: ignore[arg-type]
            lambda _, gone: Watch(self._master_machine, gone),  # type: ignore[arg-type, return-value]
            parts,
        )
        while True:
            self._handle(self._inbox.get())

    def _heartbeat(self) -> None:
        while True:
            beat = {
                "state": self.worker_state,
                "current_cpu_usage": 1.0,
                "users": len(self._users),
            }
            self.client.send(Message("heartbeat", beat, self.name))
            gevent.sleep(HEARTBEAT_S)

    # ------------------------------------------------------------------ as Locust's worker runner

    def register_message(
        self, kind: str, listener: Any, concurrent: bool = False
    ) -> None:
        """See Locust."""
        self._handlers[kind] = listener, concurrent

    def send_message(
        self, kind: str, data: Any = None, client_id: str | None = None
    ) -> None:
        """See Locust."""
        self.client.send(Message(kind, data, self.name))

    def _handle(self, message: Message) -> None:
        self.client.ready.received(message)
        if message.type == "spawn":
            self.client.send(Message("spawning", None, self.name))
            if message.data["number"] > self._newest_spawn:
                self._newest_spawn = message.data["number"]
                self._spawn(message.data["users"])
        elif message.type == "stop":
            self._stop()
            self.client.send(Message("client_stopped", None, self.name))
            self.client.send(Message("client_ready", "2", self.name))
        elif message.type == "quit":
            gevent.spawn(self.quit)
        elif message.type in self._handlers:
            listener, is_concurrent = self._handlers[message.type]
            if is_concurrent:
                gevent.spawn(listener, environment=self.environment, msg=message)
            else:
                listener(environment=self.environment, msg=message)

    def _spawn(self, users: int) -> None:
        if self.worker_state != STATE_RUNNING:
            self.worker_state = STATE_RUNNING
            self.environment.events.test_start.fire(environment=self.environment)
        while len(self._users) < users:
            User(self.environment).start(self._users)
        self._stop_users(len(self._users) - users)

    def next_user(self) -> int:
        """The number of a user that is about to start."""
        self._started_users += 1
        return self._started_users

    def _stop_users(self, count: int) -> None:
        """Any of them, as Locust does: it keeps its users in a set. Drawn, so that a seed is the
        same run everywhere. The next message is read when they have ended and left their group,
        which is after `killall`: it forgets those that have not begun."""
        in_order = sorted(self._users, key=attrgetter("args"))
        chosen = self._chance.sample(in_order, max(count, 0))
        ending = Group()
        for user in chosen:
            ending.add(user)
        gevent.killall(chosen)
        ending.join()

    def _stop(self) -> None:
        if self.worker_state != STATE_RUNNING:
            return
        self.worker_state = STATE_STOPPED
        self._stop_users(len(self._users))
        self.environment.events.test_stop.fire(environment=self.environment)

    def quit(self) -> None:
        """The process ends in order."""
        if self.is_over:
            return
        self.is_over = True
        self._stop()
        self.environment.events.quitting.fire(environment=self.environment)
        self.client.send(Message("quit", None, self.name))
        gevent.sleep(0.5)
        self.die()

    def kill(self) -> None:
        """By kill -9."""
        self.was_killed = True
        self.die()

    def die(self) -> None:
        """The process is gone."""
        if not self.machine.is_dead:
            self.is_over = True
            self.machine.is_dead = True
            assert self.link is not None
            self.link.worker_died()

    def now_ns(self) -> int:
        """Its machine's monotonic clock."""
        return self.machine.monotonic_ns(self.loop.now_ns)

    # ------------------------------------------------------------------ its network

    def send(self, channel: str, message: Message) -> bool:
        """Whether it is on its way."""
        if self.machine.is_dead or self.link is None:
            return False
        return self.link.send(channel, TO_MASTER, message)

    def received(self, message: Message) -> None:
        """A message of the master has come."""
        with self.loop.on(self.machine):
            self._inbox.put_nowait(message)

    def connected(self) -> None:
        """A connection is there."""
        self.client.is_connected = True
        self.client.connections += 1
        self.client.closed_since_s = None
        self.client.send_waiting()

    def disconnected(self) -> None:
        """No connection is there."""
        self.client.is_connected = False


class User:
    """A user of the worker: it takes leases and sends their requests, as `LlamaUser` does."""

    weight = 1
    fixed_count = 0

    def __init__(self, environment: Any) -> None:
        self._process: WorkerProcess = environment.process
        self._environment = environment

    @classmethod
    def workload_name(cls) -> str:
        """See `LlamaUser.workload_name`."""
        return WORKLOAD

    def start(self, group: Group) -> None:
        """Begin."""
        group.spawn(self._run, self._process.next_user())

    def _run(self, _number: int) -> None:
        while self._environment.llama_load is None:
            gevent.sleep(0.02)
        session = self._environment.llama_load
        try:
            while True:
                opened = self._send(session, session.take(WORKLOAD))
                try:
                    if self._process.holds_open:
                        self._ask_for_more(session)
                finally:
                    opened.publish()
        except StopUser:
            return

    def _ask_for_more(self, session: Any) -> None:
        """What a task may do while it holds an answer open: have greenlets of its own send."""
        inner = [gevent.spawn(self._send_one, session) for _ in range(INNER_REQUESTS)]
        try:
            gevent.joinall(inner)
        finally:
            gevent.killall(inner, block=False)

    def _send_one(self, session: Any) -> None:
        with suppress(StopUser):
            self._send(session, session.take(WORKLOAD)).publish()

    def _send(self, session: Any, ticket: Any) -> OpenRecord:
        process = self._process
        lease = ticket.lease
        process.requests += 1
        began_ns = process.machine.monotonic_ns(process.loop.now_ns)
        request = Request(
            lease.key,
            f"{process.name}-{process.requests}",
            process.name,
            process.loop.now_ns,
        )
        process.server.log.append(request)
        exchange = Exchange(process.server, process.machine, request)
        process.environment.connections.active[exchange] = None
        was_killed = True
        try:
            exchange.wait()
            was_killed = False
        finally:
            exchange.cancel()
            process.environment.connections.active.pop(exchange, None)
            now_ns = process.machine.monotonic_ns(process.loop.now_ns)
            status = exchange.status or "cancelled"
            on_worker = Request(request.key, request.request_id, process.name, began_ns)
            record = record_of(
                on_worker,
                status,
                process.name,
                now_ns=now_ns,
                scheduled_ns=lease.scheduled_ns,
                stage=lease.stage,
            )
            session.done(ticket, record)
            opened = OpenRecord(session, record)
            if was_killed:
                opened.publish()
        if status != "ok":
            gevent.sleep(0.1)
        return opened
