"""Writes received records to the master's disk, in a thread, so that a slow disk does not block the master."""

from __future__ import annotations

import logging
import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

import gevent
from gevent.event import Event

from llama_load.dispatch.leases import Key
from llama_load.foreign_records import BadRecords, check_integers
from llama_load.record import schema
from llama_load.run.in_thread import in_thread
from llama_load.runs import RunWriter

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

# A disk that refuses is tried again every RETRY_S; after REFUSED_FOR_S, or at the end, records go to the system's temporary folder.
# A request counts as ended only when its record is stored, so the load pauses meanwhile.
RETRY_S = 0.25
REFUSED_FOR_S = 1.0
# At most this much waits for a slow disk. Further batches are refused; workers keep them and send them again.
MOST_WAITING_BYTES = 64 << 20


class Row(NamedTuple):
    """The fields of a record that the master reads: request, status, output tokens, and (TTFT, TPOT, E2EL)."""

    key: Key
    status: str
    output_tokens: int | None
    latencies_ms: tuple[float | None, float | None, float | None]


@dataclass(frozen=True, slots=True)
class Delivery:
    """A numbered batch of a worker's records."""

    worker: str
    number: int
    batch: pa.RecordBatch
    rows: list[Row]
    size: int  # bytes


class Receiver(Protocol):
    """Decides which records count, and is notified when they are stored."""

    def admit(self, delivery: Delivery) -> Delivery:
        """The part of a delivery to be written. Called just before writing."""

    def stored(self, delivery: Delivery, admitted: Delivery) -> None:
        """The admitted part has been written: the delivery can be acknowledged."""


class RecordIngest:
    """A queue in front of the run folder. All waiting deliveries are written at once."""

    def __init__(self, writer: RunWriter, receiver: Receiver) -> None:
        self._writer = writer
        self._receiver = receiver
        self._queue: list[Delivery] = []
        self._waiting: set[tuple[str, int]] = set()
        self._bytes = 0
        self._there = Event()
        self._refused_s: float | None = None  # since when the disk refuses
        self._ending = self._closing = False
        self._greenlet = gevent.spawn(self._work)

    def put(self, delivery: Delivery) -> None:
        """Queue a delivery, unless it is queued already or the queue is full."""
        key = (delivery.worker, delivery.number)
        if key not in self._waiting and self._bytes < MOST_WAITING_BYTES:
            self._waiting.add(key)
            self._bytes += delivery.size
            self._queue.append(delivery)
            self._there.set()

    def hurry(self) -> None:
        """The run is over: records that the disk refuses go to the temporary folder at once."""
        self._ending = True

    def close(self) -> None:
        """Write nothing more, after the write in progress."""
        self._closing = True
        self._there.set()
        self._greenlet.join()

    def _work(self) -> None:
        while not self._closing:
            self._there.wait()
            self._there.clear()
            deliveries = list(self._queue)
            self._queue.clear()
            if deliveries and not self._write(deliveries):
                self._queue[:0] = deliveries
                gevent.sleep(RETRY_S)
                self._there.set()

    def _append(self, batch: pa.RecordBatch, *, anywhere: bool) -> None:
        try:
            in_thread(partial(self._writer.append_batch, batch, anywhere=anywhere))
        except OSError:
            if not self._ending:
                raise
            self._writer.keep(batch)

    def _sound(self, deliveries: list[Delivery]) -> list[tuple[Delivery, Delivery]]:
        """Each delivery with its admitted part. Deliveries that cannot be stored are left out."""
        found = []
        for delivery in deliveries:
            try:
                found.append((delivery, self._receiver.admit(delivery)))
            except Exception as error:
                logger.error("records of worker %s cannot be stored: %s", delivery.worker, error)
        try:  # all at once: each alone would take 0.13 ms, 7 % of a core for 50 workers
            check_integers(_joined(found).columns)
        except BadRecords as error:
            logger.error("records cannot be stored: %s", error)
            found = [pair for pair in found if _is_bounded(pair[1])]
        return found

    def _write(self, deliveries: list[Delivery]) -> bool:
        """Write them at once; False if the disk refuses."""
        refused_for_s = 0.0 if self._refused_s is None else time.monotonic() - self._refused_s
        anywhere = self._ending or refused_for_s > REFUSED_FOR_S or self._bytes >= MOST_WAITING_BYTES
        try:
            admitted = self._sound(deliveries)
            for batch in _joined(admitted).to_batches():
                self._append(batch, anywhere=anywhere)
            for delivery, part in admitted:
                self._receiver.stored(delivery, part)
            if not anywhere:
                self._refused_s = None
        except OSError as error:  # not acknowledged, so retried here or sent again by the worker
            if self._refused_s is None:
                self._refused_s = time.monotonic()
                print(f"cannot write to {self._writer.path}: {error.strerror}; workers keep their records", file=sys.stderr)
            return False
        except Exception:  # a batch that cannot be stored must not block the following ones
            logger.exception("records cannot be stored; please report this")
        for delivery in deliveries:
            self._waiting.discard((delivery.worker, delivery.number))
            self._bytes -= delivery.size
        return True


def _joined(pairs: list[tuple[Delivery, Delivery]]) -> pa.Table:
    """What is to be written of these deliveries, in one piece."""
    import pyarrow as pa

    return pa.Table.from_batches([part.batch for _, part in pairs], schema()).combine_chunks()


def _is_bounded(delivery: Delivery) -> bool:
    try:
        check_integers(delivery.batch.columns)
    except BadRecords:
        return False
    return True
