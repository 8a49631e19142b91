"""The master's side of a swarm: runs the controller, sends leases, receives records, detects lost
workers."""

from __future__ import annotations

import logging
import secrets
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import gevent
import msgspec
from locust.runners import STATE_MISSING

from llama_load.ground.version import __version__
from llama_load.loadgen.dispatch.leases import Key, Lease
from llama_load.loadgen.live.gauges import MASTER_LAG, WORKER_CPU
from llama_load.loadgen.preflight.prepare import Prepared
from llama_load.loadgen.run.controller import WatchersOf
from llama_load.loadgen.run.run_clock import RunClock
from llama_load.loadgen.run.sender import SenderConfig
from llama_load.loadgen.run.watchers import watchers_of
from llama_load.loadgen.swarm import messages
from llama_load.loadgen.swarm.ingest import RecordIngest
from llama_load.loadgen.swarm.lease_packing import pack_leases
from llama_load.loadgen.swarm.locust_run import LocustRun
from llama_load.loadgen.swarm.messages import short_name
from llama_load.loadgen.swarm.presence import (
    LOST_AFTER_S,
    has_closed,
    has_ended,
    introduction,
)
from llama_load.loadgen.swarm.user_scaler import UserScaler
from llama_load.loadgen.swarm.worker_state import WorkerState
from llama_load.outside.command_secrets import is_secret_header
from llama_load.outside.foreign_text import masked, printable
from llama_load.run_folder import Run
from llama_load.run_folder.observed.worker_health import WorkerHealth
from llama_load.servers.target import Target

logger = logging.getLogger(__name__)

WATCH_EVERY_S = 0.25
PING_EVERY_S = 2.0
MOST_EARLY = 100
# Workers send a batch of records this often at most: 25 workers every 0.1 s, 50 every 0.2 s, 500
# every 2 s, because each batch costs the master 0.3 ms. The page shows a request that much later,
# and the master's lag (5 s is too much) includes it.
BATCH_EVERY_S = 0.004
LEAST_BATCH_EVERY_S = 0.1
MOST_BATCH_EVERY_S = 2.0
SAY_AGAIN_EVERY_S = 2.0


class MasterRun(LocustRun):
    """One run of a swarm, on its master."""

    def __init__(
        self,
        environment: Any,
        prepared: Prepared,
        user_scaler: UserScaler,
        clock: RunClock | None = None,
        watchers: WatchersOf = watchers_of,
    ) -> None:
        super().__init__(environment, prepared, user_scaler, clock, watchers)
        import pyarrow.compute  # noqa: F401 - it checks batches of records, and must not be imported when the first one comes

        self._runner = environment.runner
        self._name = secrets.token_hex(8)
        wall_offset_ns = time.time_ns() - time.monotonic_ns()
        config = messages.RunConfig(
            self._name,
            _redact_config(SenderConfig.of(prepared)),
            prepared.ends_matter,
            self.draws_every_s(environment),
            [user.__name__ for user in environment.user_classes],
            sorted(
                {name for target in prepared.targets for name in _secret_names(target)}
            ),
            wall_offset_ns,
        )
        self._config = msgspec.msgpack.encode(config)
        self._workers: dict[str, WorkerState] = {}
        self._ingest = RecordIngest(
            prepared.writer,
            self.controller,
            self._workers,
            self._acknowledge,
            wall_offset_ns,
        )
        self._watcher: gevent.Greenlet | None = None

    def open(self) -> None:
        """Send the configuration to the connected workers, and begin the first phase."""
        for client_id in list(self._runner.clients):
            self._welcome(client_id)
        self._watcher = gevent.spawn(self._watch)
        super().open()

    def stopping(self, reason: str) -> None:
        """Locust is stopping the users: begin no more requests, and have workers send all
        records."""
        super().stopping(reason)
        self._ingest.hurry()
        self._say_end()
        if self._wait_s:  # Locust kills the users next
            self._await_last_words()

    def end_wait(self) -> None:
        """See `LocustRun.end_wait`."""
        if self._wait_s:
            self._wait_s = 0
            self._say_end()

    def finish(self) -> Run:
        """See `collect`, then `RunController.finish`."""
        return self.controller.finish(self.collect())

    def collect(self) -> list[WorkerHealth]:
        """Wait for every worker's FLUSHED message and its records; name what is missing. How the
        workers were."""
        self._wait_s = 0
        self._await_last_words()
        self._ingest.close()
        if self._watcher is not None:
            self._watcher.kill(block=False)
        for client_id, worker in self._workers.items():
            if worker.is_flushed:
                self._name_unrecorded(client_id, worker)
            elif not worker.lost:
                self._lose(client_id, worker, may_return=True)
        for gone in self.controller.dispatcher.ledger.lost:
            gone.worker = short_name(gone.worker)
        self.prepared.writer.manifest.master_lag_s = self._ingest.usual_lag_s
        return self._health()

    def _await_last_words(self) -> None:
        arrived = -1
        said_s = time.monotonic()
        begun_s = heard_s = time.monotonic()
        while waited_for := [
            worker for worker in self._workers.values() if not worker.is_drained
        ]:
            now = sum(len(worker.received) for worker in self._workers.values())
            if now != arrived:
                arrived = now
                heard_s = time.monotonic()
            # With --at-end wait requests in flight may take that long; records of ended ones come
            # at once or not at all.
            has_requests = any(worker.sent_batches is None for worker in waited_for)
            until_s = heard_s + LOST_AFTER_S
            if has_requests:
                until_s = max(until_s, begun_s + self._wait_s)
            if time.monotonic() > until_s:
                return
            # the message or its answer may have been lost with a connection
            if time.monotonic() - said_s > SAY_AGAIN_EVERY_S:
                said_s = time.monotonic()
                self._say_end()
            gevent.sleep(0.02)
            self._find_lost()

    def _say_end(self) -> None:
        for client_id, worker in self._workers.items():
            if not worker.is_flushed:
                self._send(messages.END, {"wait_s": self._wait_s}, client_id)

    # ------------------------------------------------------------------ messages of workers

    def on_message(self, kind: str, client_id: str, data: dict[str, Any]) -> None:
        """Handle a worker's message."""
        if kind == messages.HELLO and self.controller.end_reason is None:
            self._welcome(client_id)
        worker = self._workers.get(client_id)
        if worker is None or data.get("run", self._name) != self._name:
            return
        worker.heard_ns = time.monotonic_ns()
        dispatcher = self.controller.dispatcher
        if kind == messages.REPORT:
            self._on_report(client_id, worker, data)
        elif kind == messages.BACK:
            keys = _keys(data["keys"])
            worker.started.difference_update(keys)
            dispatcher.give_back(client_id, keys)
        elif kind == messages.RECORDS:
            self._on_records(client_id, worker, data["number"], data["batch"])
        elif kind == messages.TOKENS:
            self._on_tokens(client_id, worker, data["answers"])
        elif kind == messages.PONG:
            self._on_pong(client_id, worker, data)
        elif kind == messages.FLUSHED:
            worker.own_health = messages.unpack_health(data["health"])
            worker.open = set(_keys(data["open"]))
            worker.sent_batches = data["batches"]
            worker.gave_up = data["gave_up"]
            self._send(messages.HEARD, {}, client_id)
        elif kind == messages.ABORT:
            self.controller.abort(printable(str(data["sentence"])))
        elif kind == messages.REFUSE:
            self._on_refusal(
                client_id,
                worker,
                f"worker {short_name(client_id)}: {printable(str(data['sentence']))}",
            )

    def _on_pong(
        self, client_id: str, worker: WorkerState, data: dict[str, Any]
    ) -> None:
        if not 0 <= data["asked_ns"] <= worker.heard_ns:
            raise ValueError("an answer to a ping that was not sent")
        worker.owes_pong = False
        was_known = worker.clock.is_known
        worker.clock.add(data["asked_ns"], data["worker_ns"], time.monotonic_ns())
        early = worker.early
        worker.early = []
        for number, batch in early:
            self._on_records(client_id, worker, number, batch)
        # the ping carries the offset for the worker's spool
        if worker.is_fresh or (worker.clock.is_known and not was_known):
            self._ping(client_id, worker)
        if "holds" in data and not worker.lost and worker.clock.is_known:
            self.controller.dispatcher.reconcile(
                client_id,
                data["delivered"],
                _keys(data["holds"]),
                data["wants"],
                _keys(data.get("held_open", ())),
            )

    def _on_report(
        self, client_id: str, worker: WorkerState, report: dict[str, Any]
    ) -> None:
        dispatcher = self.controller.dispatcher
        # Not those whose records have come first: nobody would take them out again. Such a request
        # may have been leased to this worker again, because it was cancelled.
        for warmup, index, delivery in report["started"]:
            key = (bool(warmup), index)
            if dispatcher.ledger.has_lease(client_id, key, delivery):
                worker.started.add(key)
        for warmup, index, refused in report["ended"]:
            dispatcher.request_ended(client_id, (bool(warmup), index), refused=refused)
        # else the next pong repeats it
        for workload, count in report["wants"].items() if worker.clock.is_known else ():
            dispatcher.want(client_id, workload, count)

    def _on_records(
        self, client_id: str, worker: WorkerState, number: int, data: bytes
    ) -> None:
        if number in worker.received:
            self._acknowledge(client_id, [number])
        elif worker.can_date_records:
            self._ingest.put(client_id, number, data)
        elif len(worker.early) < MOST_EARLY:  # else the worker sends it again
            worker.early.append((number, data))
            if not worker.owes_pong:
                self._ping(client_id, worker)

    def _on_tokens(
        self,
        client_id: str,
        worker: WorkerState,
        answers: Sequence[tuple[int, int, int, bytes]],
    ) -> None:
        if not worker.clock.is_known:
            return

        offset_ns = worker.clock.now(time.monotonic_ns()).offset_ns
        ledger = self.controller.dispatcher.ledger
        arrived = []
        for answer in messages.unpack_tokens(answers, offset_ns):
            # Else its record has come first.
            if ledger.has_lease(client_id, (False, answer.number)):
                arrived.append(answer)

        self.controller.live.add_tokens(arrived)

    def _acknowledge(self, client_id: str, numbers: Sequence[int]) -> None:
        self._send(messages.ACK, {"numbers": numbers}, client_id)

    def _on_refusal(self, client_id: str, worker: WorkerState, sentence: str) -> None:
        """A worker cannot take part. A late one is left out; before measuring the run is
        aborted."""
        if self.controller.dispatcher.assigner.measuring and any(
            not other.left for other in self._workers.values() if other is not worker
        ):
            print(f"{sentence} (the run goes on without it)", file=sys.stderr)
            worker.left = True
            self.controller.dispatcher.leave(client_id)
        else:
            self.controller.abort(sentence)

    # ------------------------------------------------------------------ workers

    def _welcome(self, client_id: str) -> None:
        """Send the run's configuration to a worker, which may have joined late."""
        worker = self._workers.setdefault(client_id, WorkerState())
        self.controller.dispatcher.ledger.expect(client_id)
        about = {
            "fingerprint": messages.fingerprint(),
            "version": __version__,
            "master": introduction(),
        }
        self._send(messages.RUN, about | {"config": self._config}, client_id)
        if worker.is_fresh:
            self._ping(client_id, worker)

    def sending(self) -> int:
        """See `RunHost.sending`."""
        return sum(
            len(worker.started) for worker in self._workers.values() if not worker.lost
        )

    def gauges(self) -> dict[str, float]:
        """See `RunHost.gauges`."""
        busiest = max(
            (node.cpu_usage for node in self._environment.runner.clients.values()),
            default=0.0,
        )
        return {MASTER_LAG: self._ingest.lag_s, WORKER_CPU: float(busiest)}

    def deliver(self, worker: str, leases: list[Lease]) -> None:
        """See `Courier.deliver`."""
        offset_ns = self._workers[worker].clock.now(time.monotonic_ns()).offset_ns
        leases = [_on_its_clock(lease, offset_ns) for lease in leases]
        number = self.controller.dispatcher.ledger.workers[worker].deliveries
        for part in pack_leases(leases):
            about = {"leases": part, "delivery": number}
            self._send(messages.LEASES, about, worker)

    def _watch(self) -> None:
        while True:
            self._find_lost()
            now = time.monotonic()
            # a copy: a worker may join while a message is sent
            for client_id, worker in tuple(self._workers.items()):
                if (
                    not worker.lost
                    and not worker.left
                    and (worker.is_fresh or now - worker.pinged_s > PING_EVERY_S)
                ):
                    self._ping(client_id, worker)
            gevent.sleep(WATCH_EVERY_S)

    def _ping(self, client_id: str, worker: WorkerState) -> None:
        worker.pinged_s = time.monotonic()
        worker.owes_pong = True
        clock = worker.clock
        offset_ns = clock.now(time.monotonic_ns()).offset_ns if clock.is_known else None
        batch_every_s = min(
            max(LEAST_BATCH_EVERY_S, BATCH_EVERY_S * len(self._workers)),
            MOST_BATCH_EVERY_S,
        )
        delivered = self.controller.dispatcher.ledger.workers[client_id].deliveries
        ping = {
            "delivered": delivered,
            "offset_ns": offset_ns,
            "batch_every_s": batch_every_s,
        }
        self._send(messages.PING, ping | {"asked_ns": time.monotonic_ns()}, client_id)

    def _find_lost(self) -> None:
        for client_id, worker in self._workers.items():
            node = self._runner.clients.get(client_id)
            # Locust has no entry for a worker that has quit, nor, for a moment, for one that was
            # stopped and has sent FLUSHED.
            gone = (
                worker.sent_batches is None
                if node is None
                else node.state == STATE_MISSING or has_closed(node)
            )
            if (
                worker.is_flushed and not worker.left
            ):  # a person has stopped it during the run
                worker.left = True
                self._name_unrecorded(client_id, worker)
                self.controller.dispatcher.leave(client_id)
            if gone and not worker.lost and not worker.is_flushed:
                why = (
                    "has closed its connections"
                    if node is not None and has_closed(node)
                    else None
                )
                self._lose(
                    client_id,
                    worker,
                    may_return=node is not None and not has_ended(node),
                    why=why,
                )
            elif worker.lost and not gone:
                # it is back; its records count unless the request was sent again elsewhere
                worker.lost = False

    def _name_unrecorded(self, client_id: str, worker: WorkerState) -> None:
        """A worker has delivered all its records: whatever else it has begun, by its own word or by
        its reports, is named."""
        ledger = self.controller.dispatcher.ledger
        reported = {key for key in worker.started if ledger.has_lease(client_id, key)}
        self.controller.dispatcher.give_up(client_id, worker.open | reported)
        worker.started.clear()
        worker.open.clear()

    def _lose(
        self,
        client_id: str,
        worker: WorkerState,
        *,
        may_return: bool,
        why: str | None = None,
    ) -> None:
        worker.lost = True
        why = (
            why or f"has been silent for {LOST_AFTER_S} s"
            if may_return and self.controller.end_reason is None
            else "is gone"
        )
        fate = "its unsent requests go to other workers"
        if self.controller.end_reason is not None:
            fate = (
                "its last records may be missing"
                if worker.started
                else "nothing of it is known to be missing"
            )
        elif may_return:
            fate = "requests that it may have sent are not repeated"
        print(f"worker {short_name(client_id)} {why}; {fate}", file=sys.stderr)
        self.controller.dispatcher.lose(
            client_id, worker.started, worker.heard_ns, may_return=may_return
        )

    def _health(self) -> list[WorkerHealth]:
        return [
            worker.health(short_name(client_id))
            for client_id, worker in self._workers.items()
        ]

    def _send(self, kind: str, data: dict[str, Any], client_id: str) -> None:
        self._runner.send_message(kind, data | {"run": self._name}, client_id)


def _secret_names(target: Target) -> set[str]:
    """The names of the headers that hold a key, in lower case."""
    return {
        name.lower()
        for name, value in target.headers.fields
        if is_secret_header(name, value)
    }


def _redact_config(config: SenderConfig) -> SenderConfig:
    """The configuration without headers that hold a key, and with masked secrets in bodies: keys
    are not sent."""
    public = [
        replace(target, headers=target.headers.without(_secret_names(target)))
        for target in config.targets
    ]
    body = config.settings.body_options
    return replace(
        config,
        targets=public,
        settings=replace(
            config.settings, body_options=replace(body, extra=masked(body.extra))
        ),
    )


def _keys(pairs: Iterable[Sequence[int]]) -> list[Key]:
    """Lease keys from a message, in which tuples have become lists."""
    return [(bool(warmup), index) for warmup, index in pairs]


def _on_its_clock(lease: Lease, offset_ns: int) -> Lease:
    """The lease with its instants on the worker's clock: master's - offset."""
    if lease.scheduled_ns is None:
        return lease
    allowed_ns = None if lease.allowed_ns is None else lease.allowed_ns - offset_ns
    return replace(
        lease, scheduled_ns=lease.scheduled_ns - offset_ns, allowed_ns=allowed_ns
    )
