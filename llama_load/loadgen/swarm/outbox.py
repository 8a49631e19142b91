"""A worker's outgoing records: in numbered batches, kept until the master has them on its disk."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from llama_load.ground.arrow import release_unused
from llama_load.loadgen.dispatch.leases import Key
from llama_load.loadgen.run.open_requests import key_of
from llama_load.run_folder import SpoolManifest
from llama_load.run_folder.observed.record import RequestRecord, schema, to_batch
from llama_load.run_folder.spool import Spool, temp_folder

logger = logging.getLogger(__name__)

# Bytes that are on their way at most: a master that is behind gets no more until it has stored
# these. 25 batches of 10 records.
WINDOW_BYTES = 256 * 1024
# A batch without an answer is sent again after RESEND_AFTER_S, then after twice that, and so on.
RESEND_AFTER_S = 5.0
RESEND_AT_LEAST_EVERY_S = 60.0
# So many batches are an overload (of the master, or a network that was cut): the process has grown
# for them, by 14 KiB each.
OVERLOAD_BATCHES = 100
# Batches acknowledged within this time are not spooled: a healthy run writes nothing to the
# workers' disks.
SPOOL_AFTER_S = 0.5


@dataclass(slots=True)
class _Batch:
    number: int
    data: bytes
    keys: list[Key]
    made_s: float
    sent_s: float | None = None  # None: to be sent
    patience_s: float = RESEND_AFTER_S
    spooled: bool = False


class Outbox:
    """Sends batches from a `Recorder`: `send` returns False while the master is not connected.
    Batches that are not acknowledged are sent again, and spooled.

    The spool is a folder in the worker's `runs` folder or, if that disk refuses, in the system's
    temporary folder. It is removed when everything has arrived; otherwise `llama-load report RUN
    --add SPOOL` adds it.
    """

    def __init__(
        self,
        path: Path,
        about: SpoolManifest,
        send: Callable[[int, bytes], bool],
        now_s: Callable[[], float] | None = None,
        new_spool: Callable[[Path, SpoolManifest], Spool] = Spool,
    ) -> None:
        self.path = path
        self.about = about
        self._send = send
        self._now_s = now_s or time.monotonic
        self._new_spool = new_spool
        self._spools = [new_spool(path, about)]
        self._unacknowledged: dict[int, _Batch] = {}
        self._on_their_way = 0  # bytes
        self._reported = False
        self._had_overload = False
        self.batches = 0

    def append(self, records: Sequence[RequestRecord], _anywhere: bool = False) -> None:
        """Send these records as one batch."""
        self.batches += 1
        data = to_batch(records).serialize().to_pybytes()
        self._unacknowledged[self.batches] = _Batch(
            self.batches, data, [key_of(record) for record in records], self._now_s()
        )
        self._had_overload |= len(self._unacknowledged) > OVERLOAD_BATCHES
        self.send_waiting()

    def acknowledged(self, numbers: Iterable[int]) -> list[Key]:
        """The master has stored these batches. Returns the lease keys in them."""
        stored = [
            batch
            for number in numbers
            if (batch := self._unacknowledged.pop(number, None)) is not None
        ]
        self._on_their_way -= sum(
            len(batch.data) for batch in stored if batch.sent_s is not None
        )
        self.send_waiting()
        return [key for batch in stored for key in batch.keys]

    def send_waiting(self) -> None:
        """Send what waits, and again what has waited too long for its answer, the oldest first."""
        now_s = self._now_s()
        for batch in list(self._unacknowledged.values()):
            if batch.sent_s is not None:
                if now_s - batch.sent_s <= batch.patience_s:
                    continue
                batch.patience_s = min(2 * batch.patience_s, RESEND_AT_LEAST_EVERY_S)
                self._take_back(batch)
            if self._on_their_way >= WINDOW_BYTES or not self._send(
                batch.number, batch.data
            ):
                return
            batch.sent_s = now_s
            self._on_their_way += len(batch.data)

    def connected_again(self) -> None:
        """What was on its way may be lost with the connection."""
        for batch in self._unacknowledged.values():
            self._take_back(batch)
        self.send_waiting()

    def _take_back(self, batch: _Batch) -> None:
        if batch.sent_s is not None:
            batch.sent_s = None
            self._on_their_way -= len(batch.data)

    @property
    def is_behind(self) -> bool:
        """Whether batches wait because the master has not stored earlier ones, or is not
        connected."""
        return any(batch.sent_s is None for batch in self._unacknowledged.values())

    @property
    def all_arrived(self) -> bool:
        """Whether the master has everything."""
        return not self._unacknowledged

    @property
    def all_spooled(self) -> bool:
        """Whether all unacknowledged batches are on this machine's disk."""
        return all(batch.spooled for batch in self._unacknowledged.values())

    def spool(self, older_than_s: float = SPOOL_AFTER_S) -> None:
        """Spool batches that have waited this long. Blocks with the disk. If that refuses, the
        records stay in memory. After an overload its memory is given back."""
        since = self._now_s() - older_than_s
        try:
            # copied at once: the event loop adds and removes meanwhile
            for batch in list(self._unacknowledged.values()):
                if (
                    batch.number in self._unacknowledged
                    and not batch.spooled
                    and batch.made_s <= since
                ):
                    self._write(batch)
                    batch.spooled = True
        except OSError as error:
            if not self._reported:
                logger.warning(
                    "cannot spool to %s: %s; records are kept only in memory",
                    self.path,
                    error.strerror,
                )
            self._reported = True
        if self._had_overload and not self._unacknowledged:
            self._had_overload = False
            release_unused()

    def _write(self, batch: _Batch) -> None:
        import pyarrow as pa

        columns = pa.ipc.read_record_batch(pa.py_buffer(batch.data), schema())
        try:
            self._spools[-1].append(columns)
        except OSError:
            if len(self._spools) > 1:
                raise
            self._spools.append(self._new_spool(temp_folder("spool"), self.about))
            self._spools[-1].append(columns)

    def close_spool(self) -> None:
        """Note in the spools that they have every record of this worker that the master has not
        acknowledged."""
        for spool in self._spools:
            try:
                spool.complete()
            except OSError as error:
                logger.warning("cannot write to %s: %s", spool.path, error.strerror)

    @property
    def spooled_to(self) -> list[Path]:
        """The spools that hold something."""
        return [spool.path for spool in self._spools if spool.records]

    def discard_spool(self) -> None:
        """Delete the spools: everything has arrived."""
        for spool in self._spools:
            with suppress(OSError):
                spool.discard()
