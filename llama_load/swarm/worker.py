"""A worker's side of a swarm: its users' leases come by message, its records go by message."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gevent
from locust.runners import STATE_RUNNING, STATE_SPAWNING

from llama_load import __version__
from llama_load.errors import LlamaLoadError
from llama_load.metrics.verdict import WorkerHealth
from llama_load.record import RequestRecord
from llama_load.runs import SpoolManifest
from llama_load.swarm import messages
from llama_load.swarm import options as flags
from llama_load.swarm.coordinator import Key, Lease
from llama_load.swarm.crew import Crew, Orders
from llama_load.swarm.master import short
from llama_load.swarm.outbox import Outbox
from llama_load.swarm.recorder import Recorder

FLUSH_EVERY_S = 0.1
# A lease that was asked for may have been lost with a connection.
ASK_AGAIN_EVERY_S = 2.0
ACKNOWLEDGED_WITHIN_S = 5.0

logger = logging.getLogger(__name__)


class WorkerLife:
    """One worker process: it hears the master's messages, and has a `WorkerRun` while Locust has users here."""

    def __init__(self, environment: Any) -> None:
        self._environment = environment
        self._runner = environment.runner
        self._orders: messages.RunOrders | None = None
        self._run: WorkerRun | None = None
        environment.llama_load = None
        for kind in messages.TO_WORKER:
            self._runner.register_message(kind, self._heard, concurrent=kind == messages.END)
        environment.events.test_start.add_listener(self._on_test_start)
        environment.events.test_stop.add_listener(self._on_test_stop)
        environment.events.quitting.add_listener(self._on_test_stop)
        self._runner.send_message(messages.HELLO, {})

    def _heard(self, msg: Any, **_: Any) -> None:
        if msg.type == messages.RUN:
            self._take_orders(msg.data["orders"])
        elif msg.type == messages.PING:
            self._runner.send_message(messages.PONG, {"asked_ns": msg.data["asked_ns"], "worker_ns": time.monotonic_ns()})
        elif self._run is not None:
            self._run.hear(msg.type, msg.data)
        elif msg.type == messages.END:  # it never had users: there is nothing to wait for
            last_word = messages.Flushed(0, WorkerHealth(short(self._runner.client_id)))
            self._runner.send_message(messages.FLUSHED, {"last_word": messages.pack(last_word)})

    def _take_orders(self, data: bytes) -> None:
        self._orders = None
        try:
            orders = messages.unpack_orders(data)
        except ValueError:  # of another version altogether
            orders = None
        if orders is None or orders.version != __version__:
            theirs = "another version" if orders is None else orders.version
            self._refuse(f"runs llama-load {__version__}, the master {theirs}; install the same on both")
            return
        self._orders = orders
        if self._runner.worker_state in (STATE_SPAWNING, STATE_RUNNING):
            self._begin()  # a late worker: its users are there already, and wait

    def _on_test_start(self, **_: Any) -> None:
        self._begin()

    def _begin(self) -> None:
        if self._orders is None or self._run is not None:
            return
        try:
            self._run = WorkerRun(self._environment, self._orders)
        except (LlamaLoadError, OSError) as error:
            self._refuse(str(error))

    def _on_test_stop(self, **_: Any) -> None:
        if self._run is not None:
            self._run.finish()
            self._run = self._orders = self._environment.llama_load = None

    def _refuse(self, sentence: str) -> None:
        logger.error("%s", sentence)
        self._runner.send_message(messages.REFUSE, {"sentence": sentence})


class WorkerRun:
    """One run on this worker, and the `Link` of its crew to the master."""

    def __init__(self, environment: Any, orders: messages.RunOrders) -> None:
        self._runner = environment.runner
        options = flags.read(environment.parsed_options)
        name = short(self._runner.client_id)
        targets = [target.resolved_here() for target in orders.targets]
        spool = Path("runs") / f"spool-{name}-{time.strftime('%Y%m%d-%H%M%S')}"
        self._outbox = Outbox(spool, SpoolManifest(name), self._send_batch)
        self._recorder = Recorder(self._outbox, FLUSH_EVERY_S)
        self._crew = Crew(environment, name, Orders(targets, options, orders.body_options, orders.nonce), self, self._recorder.add)
        environment.llama_load = self._crew.session
        self._begun: list[Key] = []
        self._over = False
        self._keeper = gevent.spawn(self._keep)

    def hear(self, kind: str, data: dict[str, Any]) -> None:
        """The master said something."""
        if kind == messages.LEASES:
            self._crew.session.receive(messages.unpack_leases(data["leases"]))
        elif kind == messages.ACK:
            self._outbox.acknowledged(data["number"])
        elif kind == messages.END:
            self.finish(wait_s=data["wait_s"])

    def finish(self, wait_s: float = 0) -> None:
        """Begin nothing more, wait so long for what is in flight, cut the rest, send everything and say so."""
        if self._over:
            return
        self._over = True
        health = self._crew.finish(wait_s)
        self._recorder.close()
        self._send(messages.FLUSHED, {"last_word": messages.pack(messages.Flushed(self._outbox.batches, health))})
        gevent.spawn(self._tidy)

    # ------------------------------------------------------------------ the link

    def want(self, workload: str, count: int) -> None:
        """See `Link.want`."""
        self._send(messages.WANT, {"workload": workload, "count": count})

    def begun(self, lease: Lease) -> None:
        """See `Link.begun`."""
        self._begun.append(lease.key)

    def give_back(self, leases: Sequence[Lease]) -> None:
        """See `Link.give_back`."""
        self._send(messages.BACK, {"keys": [lease.key for lease in leases]})

    def ended(self, lease: Lease, record: RequestRecord) -> None:
        """See `Link.ended`. The master sees it by its record."""

    def abort(self, sentence: str) -> None:
        """See `Link.abort`."""
        self._send(messages.REFUSE, {"sentence": sentence})

    # ------------------------------------------------------------------ by itself

    def _keep(self) -> None:
        asked_s = time.monotonic()
        while not self._over:
            gevent.sleep(FLUSH_EVERY_S)
            if self._begun:
                keys, self._begun = self._begun, []
                self._send(messages.BEGUN, {"keys": keys})
            if time.monotonic() - asked_s > ASK_AGAIN_EVERY_S:
                asked_s = time.monotonic()
                self._crew.session.ask_again()
                self._outbox.send_again()

    def _tidy(self) -> None:
        with gevent.Timeout(ACKNOWLEDGED_WITHIN_S, False):
            while not self._outbox.all_arrived:
                gevent.sleep(0.05)
        if self._outbox.all_arrived:
            self._outbox.discard_spool()
        else:
            logger.error("the master has not got everything: 'llama-load report RUN --add %s' brings it in", self._outbox.path)

    def _send_batch(self, number: int, data: bytes) -> None:
        self._send(messages.RECORDS, {"number": number, "batch": data})

    def _send(self, kind: str, data: dict[str, Any]) -> None:
        self._runner.send_message(kind, data)
