"""Writes received records to the master's disk, in a thread, so that a slow disk does not block the
master."""

from __future__ import annotations

import logging
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import gevent
import numpy as np
from gevent.event import Event
from numpy.typing import NDArray

from llama_load.ground.units import NS_PER_S
from llama_load.loadgen.dispatch.leases import Key
from llama_load.loadgen.run.controller import RunController
from llama_load.loadgen.run.in_thread import in_thread
from llama_load.loadgen.swarm.messages import short_name
from llama_load.loadgen.swarm.sockets import Turns
from llama_load.loadgen.swarm.worker_state import WorkerState
from llama_load.run_folder import RunWriter
from llama_load.run_folder.observed.foreign_records import (
    MOST_INTEGER,
    MOST_SHIFTED,
    BadRecords,
    check_integers,
    read_batch,
)
from llama_load.run_folder.observed.record import CANCELLED, INSTANTS, schema

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

# A disk that refuses is tried again every RETRY_S; after REFUSED_FOR_S, or at the end, records go
# to the system's temporary folder. A request counts as ended only when its record is stored, so the
# load pauses meanwhile.
RETRY_S = 0.25
REFUSED_FOR_S = 1.0
# At most this much waits: 256 KiB each of 1000 workers. Further batches are refused; workers keep
# them and send them again.
MOST_WAITING_BYTES = 256 << 20
# Written at once: about 1000 records with 200 gaps each. More would hold up what else the master
# does.
MOST_AT_ONCE_BYTES = 1 << 20
# Of the lags of all writes, this many are kept.
MOST_LAGS = 4096


class Row(NamedTuple):
    """The fields of a record that the master reads: its worker, request and status."""

    worker: str
    key: Key
    status: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """A numbered batch of a worker's records, packed."""

    worker: str
    number: int
    data: bytes
    arrived_s: float


class RecordIngest:
    """The deliveries that wait to be written. One greenlet has their whole way: it decides which
    records count, writes them, acknowledges them to their workers, and tells the controller that
    their requests have ended."""

    def __init__(
        self,
        writer: RunWriter,
        controller: RunController,
        workers: Mapping[str, WorkerState],
        acknowledge: Callable[[str, Sequence[int]], None],
        wall_offset_ns: int,
    ) -> None:
        self._writer = writer
        self._controller = controller
        self._workers = workers
        self._acknowledge = acknowledge
        self._wall_offset_ns = wall_offset_ns
        self._queue: list[Delivery] = []
        self._waiting: set[tuple[str, int]] = set()
        self._bytes = 0
        self._there = Event()
        self._closing = self._ending = False
        self._refused_s: float | None = None  # since when the disk refuses
        self._lags_s: list[float] = []
        self._turns = Turns()
        self._greenlet = gevent.spawn(self._work)

    def put(self, worker: str, number: int, data: bytes) -> None:
        """Queue a batch, unless it is queued already or too much waits. Nothing in it has been
        read."""
        if (worker, number) not in self._waiting and self._bytes < MOST_WAITING_BYTES:
            self._waiting.add((worker, number))
            self._workers[worker].queued += 1
            self._bytes += len(data)
            self._queue.append(Delivery(worker, number, data, time.monotonic()))
            self._there.set()

    def hurry(self) -> None:
        """The run is over: records that the disk refuses go to the temporary folder at once."""
        self._ending = True

    def close(self) -> None:
        """Write nothing more, after the write in progress."""
        self._closing = True
        self._there.set()
        self._greenlet.join()

    @property
    def lag_s(self) -> float:
        """The time from the end of a request until its record is on disk: of the last write, or of
        what waits still, if longer."""
        waited_s = time.monotonic() - self._queue[0].arrived_s if self._queue else 0.0
        return max(waited_s, self._lags_s[-1] if self._lags_s else 0.0)

    @property
    def usual_lag_s(self) -> float | None:
        """The 90th percentile of the lag over all writes. (A single worker may have been cut off
        for a while.)"""
        return float(np.percentile(self._lags_s, 90)) if self._lags_s else None

    def _work(self) -> None:
        while not self._closing:
            self._there.wait()
            self._there.clear()
            while self._queue and not self._closing:
                if not self._write(self._next()):
                    gevent.sleep(RETRY_S)

    def _next(self) -> list[Delivery]:
        """The deliveries to be written next. They stay in the queue until they are."""
        size = 0
        for place, delivery in enumerate(self._queue):
            size += len(delivery.data)
            if size > MOST_AT_ONCE_BYTES:
                return self._queue[: max(place, 1)]
        return list(self._queue)

    def _write(self, deliveries: list[Delivery]) -> bool:
        """Write them; False if the disk refuses."""
        refused_for_s = (
            0.0 if self._refused_s is None else time.monotonic() - self._refused_s
        )
        anywhere = (
            self._ending
            or refused_for_s > REFUSED_FOR_S
            or self._bytes >= MOST_WAITING_BYTES
        )
        try:
            sound = self._sound(deliveries)
            if sound:
                self._store(sound, anywhere=anywhere)
            if not anywhere:
                self._refused_s = None
        except (
            OSError
        ) as error:  # not acknowledged, so retried here or sent again by the worker
            if self._refused_s is None:
                self._refused_s = time.monotonic()
                print(
                    f"cannot write to {self._writer.path}: {error.strerror}; workers keep their records",
                    file=sys.stderr,
                )
            return False
        except (
            Exception
        ):  # a batch that cannot be stored must not block the following ones
            logger.exception("records cannot be stored; please report this")
        del self._queue[: len(deliveries)]
        for delivery in deliveries:
            self._waiting.discard((delivery.worker, delivery.number))
            self._workers[delivery.worker].queued -= 1
            self._bytes -= len(delivery.data)
        return True

    def _sound(
        self, deliveries: Iterable[Delivery]
    ) -> list[tuple[Delivery, pa.RecordBatch]]:
        """Each delivery, unpacked. Deliveries that cannot be stored are left out."""
        batches = []
        for delivery in deliveries:
            self._turns.take()
            try:
                batches.append((delivery, read_batch(delivery.data)))
            except BadRecords as error:
                self._report(delivery, error)
        if not batches:
            return []
        try:  # all at once, because each alone takes nearly as long
            check_integers(_joined_tables(batches).columns, MOST_SHIFTED)
        except BadRecords:
            batches = [pair for pair in batches if self._is_bounded(*pair)]
        return batches

    def _is_bounded(self, delivery: Delivery, batch: pa.RecordBatch) -> bool:
        try:
            check_integers(batch.columns, MOST_SHIFTED)
        except BadRecords as error:
            self._report(delivery, error)
            return False
        return True

    def _report(self, delivery: Delivery, error: Exception) -> None:
        logger.error(
            "records of worker %s cannot be stored: %s",
            short_name(delivery.worker),
            error,
        )

    def _store(
        self, sound: list[tuple[Delivery, pa.RecordBatch]], *, anywhere: bool
    ) -> None:
        import pyarrow as pa

        joined = _joined_tables(sound)
        owners = [(delivery.worker, batch.num_rows) for delivery, batch in sound]
        rows = _rows_of_workers(joined, owners)
        new = [self._admits(row) for row in rows]
        started_ns = joined.column("started_mono_ns").to_numpy()
        ended_ns = joined.column("ended_mono_ns").to_numpy()
        shifts = []
        begin = 0
        for worker, count in owners:
            part = slice(begin, begin + count)
            clock = self._workers[worker].clock
            shifts.append(clock.shifts_ns(started_ns[part], ended_ns[part]))
            begin = part.stop
        shift_ns = np.concatenate(shifts)

        stored = _shifted(joined, shift_ns, self._wall_offset_ns)
        if not all(new):
            stored = stored.filter(pa.array(new))
            rows = [row for row, is_new in zip(rows, new, strict=True) if is_new]
        if rows:
            self._append(stored, anywhere=anywhere)
        if len(ended_ns):
            self._note_lag(
                (time.monotonic_ns() - int((ended_ns + shift_ns).min())) / NS_PER_S
            )
        numbers: defaultdict[str, list[int]] = defaultdict(list)
        for delivery, _ in sound:
            numbers[delivery.worker].append(delivery.number)
        # Before any of these requests is leased again: else the worker would take the new lease for
        # the acknowledged one.
        for worker, several in numbers.items():
            for number in several:
                self._workers[worker].received.add(number)
            self._acknowledge(worker, several)
        if rows:
            self._controller.add_batch(stored)
            self._controller.dispatcher.records_stored(self._ended(rows))

    def _admits(self, row: Row) -> bool:
        """Whether a record is to be written. Asked just before that."""
        # in case the worker is lost while they are written
        self._workers[row.worker].started.add(row.key)
        return (
            row.status == CANCELLED
            or self._controller.dispatcher.ledger.accepts_record(row.worker, row.key)
        )

    def _ended(self, rows: Iterable[Row]) -> Iterator[tuple[str, Key]]:
        """The requests among them that are not cancelled, one by one: a worker may be lost whenever
        others have their turn."""
        for worker, key, status in rows:
            self._turns.take()
            self._workers[worker].started.discard(key)
            if status == CANCELLED:
                self._controller.dispatcher.give_back(worker, [key])
            else:
                yield worker, key

    def _append(self, batch: pa.RecordBatch, *, anywhere: bool) -> None:
        try:
            in_thread(partial(self._writer.append_batch, batch, anywhere=anywhere))
        except OSError:
            if not self._ending:
                raise
            self._writer.keep(batch)

    def _note_lag(self, lag_s: float) -> None:
        self._lags_s.append(lag_s)
        if len(self._lags_s) > MOST_LAGS:
            del self._lags_s[::2]


def _joined_tables(pairs: Sequence[tuple[Delivery, pa.RecordBatch]]) -> pa.RecordBatch:
    """All records of these deliveries, in one piece."""
    import pyarrow as pa

    batches = [batch for _, batch in pairs]
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches, schema()).combine_chunks()
    return table.to_batches()[0] if table.num_rows else batches[0]


def _rows_of_workers(
    batch: pa.RecordBatch, owners: Sequence[tuple[str, int]]
) -> list[Row]:
    """See `Row`. `owners` are workers, and how many records of each follow one another."""
    columns = (
        batch.column(name).to_pylist() for name in ("warmup", "prompt_index", "status")
    )
    workers = [worker for worker, count in owners for _ in range(count)]
    return [
        Row(worker, (warmup, index), status)
        for worker, warmup, index, status in zip(workers, *columns, strict=True)
    ]


def _shifted(
    batch: pa.RecordBatch, shift_ns: NDArray[np.int64], wall_offset_ns: int
) -> pa.RecordBatch:
    """The records with their instants on the master's monotonic clock, and their start on its wall
    clock (monotonic + offset): a worker's own may be off by hours, and exports and the search for
    prompts that were sent before go by it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    shift = pa.array(shift_ns)
    for name in INSTANTS:
        place = batch.schema.get_field_index(name)
        shifted = pc.add(batch.column(place), shift)
        batch = batch.set_column(place, name, shifted)
    started_wall = pc.add(batch.column("started_mono_ns"), wall_offset_ns)
    started_wall = pc.min_element_wise(started_wall, MOST_INTEGER)
    place = batch.schema.get_field_index("started_wall_ns")
    return batch.set_column(place, "started_wall_ns", started_wall)
