"""Bugs to plant into the real code: the simulation must find each of them. Lease, acknowledgement,
spool, end of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from llama_load.loadgen.dispatch.ledger import Ledger
from llama_load.loadgen.run.controller import RunController
from llama_load.loadgen.run.lease_client import LeaseClient
from llama_load.loadgen.run.open_requests import OpenRequests
from llama_load.loadgen.run.recorder import Recorder
from llama_load.loadgen.swarm.ingest import RecordIngest
from llama_load.loadgen.swarm.master import MasterRun
from llama_load.loadgen.swarm.messages import FLUSHED, RUN
from llama_load.loadgen.swarm.outbox import Outbox
from llama_load.loadgen.swarm.unanswered_ready import READY, UnansweredReady
from llama_load.loadgen.swarm.unanswered_spawns import UnansweredSpawns
from llama_load.loadgen.swarm.worker import WorkerLifecycle, WorkerRun
from llama_load.loadgen.swarm.worker_state import WorkerState
from llama_load.run_folder import journal
from llama_load.run_folder.observed.record import CANCELLED, OK
from llama_load.run_folder.observed.records import Records
from tests.simulation.faults import Fault

# Where it is, a class or a module; what; and what it becomes.
Mutation = tuple[Any, str, Callable[[Any], Any]]


def _handed_on(real: Any) -> Any:
    """Leases of a worker that was lost go to others, also those that it may send itself."""

    def lose(
        self: Any, worker: str, started: Any, heard_ns: Any, *, may_return: bool
    ) -> Any:
        return real(self, worker, (), None, may_return=False)

    return lose


def _keeps_lost_leases(real: Any) -> Any:
    """Leases that were lost on their way are not given out again."""

    def reconcile(
        self: Any, worker: str, _delivered: int, _holds: Any, *of_users: Any
    ) -> Any:
        wants, _ = of_users
        self.join(worker)
        self.wants.forget(worker)
        for workload, count in wants.items():
            self.want(worker, workload, count)
        return []

    return reconcile


def _not_taken_out(real: Any) -> Any:
    """A lease that goes to another worker stays with the first one, too."""

    def take_back(self: Any, worker: str, keys: Any) -> Any:
        held = self.workers[worker].leases
        taken = []
        for key in list(keys):
            if key in held:
                self._free_user(held[key])
                taken.append(held[key].lease)
        return taken

    return take_back


def _acknowledged_unwritten(real: Any) -> Any:
    """A batch is acknowledged when it arrives, before it is on disk: a disk that refuses loses
    it."""

    def write(self: Any, deliveries: Any) -> bool:
        for delivery in deliveries:
            self._workers[delivery.worker].received.add(delivery.number)
            self._acknowledge(delivery.worker, [delivery.number])
        if not real(self, deliveries):
            del self._queue[: len(deliveries)]
            for delivery in deliveries:
                self._waiting.discard((delivery.worker, delivery.number))
                self._workers[delivery.worker].queued -= 1
        return True

    return write


def _acknowledges_the_next(real: Any) -> Any:
    """An acknowledgement counts for the next batch, too."""

    def acknowledged(self: Any, numbers: Any) -> Any:
        return real(self, [*numbers, max(numbers, default=0) + 1])

    return acknowledged


def _every_batch_is_new(real: Any) -> Any:
    """A batch that comes twice is stored twice."""

    def on_records(
        self: Any, client_id: str, worker: Any, number: int, data: bytes
    ) -> None:
        self._ingest.put(client_id, number, data)

    return on_records


def _any_record_counts(real: Any) -> Any:
    """A record is stored whoever has its lease."""
    return lambda self, worker, key: True


def _no_resending(real: Any) -> Any:
    """What was under way when a connection broke is not sent again."""

    def send_waiting(self: Any) -> None:
        for batch in list(self._unacknowledged.values()):
            if batch.sent_s is None and self._send(batch.number, batch.data):
                batch.sent_s = self._now_s()
                self._on_their_way += len(batch.data)

    return send_waiting


def _spooled_unwritten(real: Any) -> Any:
    """A batch that the disk refused counts as spooled."""

    def spool(self: Any, older_than_s: float = 0.5) -> None:
        real(self, older_than_s)
        for batch in self._unacknowledged.values():
            batch.spooled = True

    return spool


def _spools_half(real: Any) -> Any:
    """Every other batch is written to the spool, and all are noted."""

    def write(self: Any, batch: Any) -> None:
        if batch.number % 2:
            real(self, batch)

    return write


def _open_is_empty(real: Any) -> Any:
    """A worker's last word names nothing, and its cancelled requests have no time to become
    records."""
    return lambda self: []


def _rest_is_dropped(real: Any) -> Any:
    """The recorder closes without its last records."""

    def close(self: Any) -> Any:
        self._closing.set()
        self._greenlet.join()
        self._buffer.clear()
        return []

    return close


def _nothing_is_named(real: Any) -> Any:
    """The master does not ask what became of the requests of a worker that has ended."""
    return lambda self, client_id, worker: None


def _flushed_by_word(real: Any) -> Any:
    """The master believes that records are there as soon as a worker has sent its last word."""
    return property(lambda self: self.left or self.sent_batches is not None)


def _forgets(real: Any) -> Any:
    """Nobody knows which messages have no answer."""
    return lambda self, message: None


def _begun_is_kept(real: Any) -> Any:
    """The master keeps each request that a worker has begun."""

    def ended(self: Any, rows: Any) -> Any:
        rows = list(rows)
        yield from real(self, rows)
        for worker, key, _ in rows:
            self._workers[worker].started.add(key)

    return ended


def _held_for_ever(real: Any) -> Any:
    """A worker keeps each lease."""

    def acknowledged(self: Any, numbers: Any) -> Any:
        real(self, numbers)
        return []

    return acknowledged


def _damage_costs_all(real: Any) -> Any:
    """Of a journal with a damaged batch nothing is read."""

    def batches(source: Any, most_bytes: Any) -> Any:
        tables, gaps = real(source, most_bytes)
        return ([], gaps) if gaps else (tables, gaps)

    return batches


def _cancelled_count_as_failed(real: Any) -> Any:
    """A summary that takes cancelled requests for failed ones."""
    return lambda self: self.where(~self.equals("status", OK))


def _nobody_was_lost(real: Any) -> Any:
    """Lost workers are not in the manifest."""

    def close(self: Any, health: Any) -> None:
        real(self, health)
        self.prepared.writer.manifest.lost = []

    return close


def _nothing_happens(real: Any) -> Any:
    """A call is forgotten."""
    return lambda self: None


def _cancelled_are_reported(real: Any) -> Any:
    """A worker reports the end of a cancelled request apart from its record, as that of others."""

    def ended(self: Any, lease: Any, record: Any) -> None:
        status = OK if record.status == CANCELLED else record.status
        real(self, lease, SimpleNamespace(status=status))

    return ended


def _begins_again(real: Any) -> Any:
    """A worker that quits takes part in the run again when a late message says so."""

    def begin(self: Any) -> None:
        is_quitting = self._is_quitting
        self._is_quitting = False
        real(self)
        self._is_quitting = is_quitting

    return begin


def _none_is_held_open(_: Any) -> Any:
    """A phase waits for the records that its own users hold open."""
    return lambda self: []


PLANTED: dict[str, tuple[Mutation, ...]] = {
    "lease: a lost worker's requests are repeated": ((Ledger, "lose", _handed_on),),
    "lease: those lost on their way stay lost": ((Ledger, "reconcile", _keeps_lost_leases),),
    "lease: with two workers": ((Ledger, "take_back", _not_taken_out),),
    "lease: a late report ends the next one": ((WorkerRun, "ended", _cancelled_are_reported),),
    "acknowledgement: before the disk has it": ((RecordIngest, "_write", _acknowledged_unwritten),),
    "acknowledgement: of the next batch": ((Outbox, "acknowledged", _acknowledges_the_next),),
    "acknowledgement: a batch is stored twice": ((MasterRun, "_on_records", _every_batch_is_new), (Ledger, "accepts_record", _any_record_counts)),
    "acknowledgement: nothing is sent again": ((Outbox, "send_waiting", _no_resending), (Outbox, "connected_again", _nothing_happens)),
    "spool: a refusal counts as written": ((Outbox, "spool", _spooled_unwritten),),
    "spool: every other batch": ((Outbox, "_write", _spools_half),),
    "end: the last records are dropped": ((Recorder, "close", _rest_is_dropped), (OpenRequests, "keys", _open_is_empty), (MasterRun, "_name_unrecorded", _nothing_is_named)),
    "end: the recorder closes early": ((Recorder, "close", _rest_is_dropped),),
    "end: the master does not wait": ((WorkerState, "is_flushed", _flushed_by_word),),
    "end: a worker's lost last word is not said again": ((WorkerRun, "_repeat_last_word", _nothing_happens),),
    "end: records that tasks hold open are waited for": ((Ledger, "count_held_open", _none_is_held_open),),
    "end: a worker that quits begins again": ((WorkerLifecycle, "_begin", _begins_again),),
    "end: requests begin after it": ((LeaseClient, "close", _nothing_happens),),
    "start: a lost message is not sent again": ((UnansweredSpawns, "sent", _forgets),),
    "start: a lost word of a ready worker is not sent again": ((UnansweredReady, "sent", _forgets),),
    "start: a lost configuration is not asked for": ((WorkerLifecycle, "_ask_for_config", _nothing_happens),),
    "start: no worker begins": ((WorkerLifecycle, "_begin", _nothing_happens),),
    "memory: the master keeps begun requests": ((RecordIngest, "_ended", _begun_is_kept),),
    "memory: a worker keeps its leases": ((Outbox, "acknowledged", _held_for_ever),),
    "disk: a cut write costs the others": ((journal, "_batches", _damage_costs_all),),
    "summary: cancelled counts as failed": ((Records, "failed", _cancelled_count_as_failed),),
    "summary: nobody was lost": ((RunController, "close", _nobody_was_lost),),
}  # fmt: skip


# Faults that show bugs which few seeds show.
SHOWN_BY: dict[str, list[Fault]] = {
    "lease: a late report ends the next one": [Fault("users come and go", 2.0, 1, 0.5)],
    "acknowledgement: nothing is sent again": [Fault("connections flap", 1.0, 0, 10.0)],
    "end: a worker's lost last word is not said again": [
        Fault("SIGTERM to a worker", 2.0, 0, 3.0),
        Fault("connections reset", 1.0, 0, 1.0, FLUSHED),
    ],
    "end: a worker that quits begins again": [
        Fault("network cut", 0.15, 0, 10.0, "spawn"),
        Fault("SIGTERM to a worker", 1.72, 1, 0.5),
        Fault("SIGTERM to a worker", 3.12, 0, 40.0),
    ],
    "end: requests begin after it": [Fault("Ctrl-C", 2.0, 0, 3.0)],
    "start: a lost message is not sent again": [
        Fault("network cut to the worker", 1.0, 0, 10.0),
        Fault("SIGTERM to a worker", 1.5, 1, 3.0),
    ],
    "start: a lost word of a ready worker is not sent again": [
        Fault("connections reset", 1.0, 0, 1.0, READY)
    ],
    "start: a lost configuration is not asked for": [
        Fault("worker joins", 1.0, 0, 1.0),
        Fault("connections reset", 1.001, -1, 1.0, RUN),
        Fault("SIGTERM to a worker", 1.5, 0, 1.0),
    ],
    "summary: nobody was lost": [Fault("kill -9", 2.0, 0, 3.0)],
    "disk: a cut write costs the others": [
        Fault("kill -9 of the master in a write", 4.0, 0, 3.0)
    ],
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The code with this bug."""
    before: list[tuple[Any, str, Any]] = []
    for owner, attribute, mutation in PLANTED[name]:
        real = owner.__dict__[attribute]
        before.append((owner, attribute, real))
        setattr(owner, attribute, mutation(real))
    try:
        yield
    finally:
        for owner, attribute, real in before:
            setattr(owner, attribute, real)
