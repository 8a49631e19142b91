"""A worker's outgoing records: in numbered batches, kept until the master has them on its disk."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from llama_load.dispatch.leases import Key
from llama_load.record import RequestRecord, schema, to_batch
from llama_load.runs import Spool, SpoolManifest

logger = logging.getLogger(__name__)

RESEND_AFTER_S = 5.0
# Batches acknowledged within this time are not spooled: a healthy run writes nothing to the workers' disks.
SPOOL_AFTER_S = 0.5


@dataclass(slots=True)
class _Batch:
    number: int
    data: bytes
    keys: list[Key]
    made_s: float
    sent_s: float
    spooled: bool = False


class Outbox:
    """Sends batches from a `Recorder`. Batches that are not acknowledged are sent again, and spooled.

    The spool is a folder in the worker's `runs` folder or, if that disk refuses, in the system's temporary folder. It is removed
    when everything has arrived; otherwise `llama-load report RUN --add SPOOL` adds it.
    """

    def __init__(self, path: Path, about: SpoolManifest, send: Callable[[int, bytes], None]) -> None:
        self.path = path
        self.about = about
        self._send = send
        self._spools = [Spool(path, about)]
        self._unacknowledged: dict[int, _Batch] = {}
        self._reported = False
        self.batches = 0

    def append(self, records: Sequence[RequestRecord], *, anywhere: bool = False) -> None:
        """Send these records as one batch."""
        self.batches += 1
        data, now = to_batch(records).serialize().to_pybytes(), time.monotonic()
        self._unacknowledged[self.batches] = _Batch(self.batches, data, [_key(record) for record in records], now, now)
        self._send(self.batches, data)

    def acknowledged(self, number: int) -> list[Key]:
        """The master has stored this batch. Returns the lease keys in it."""
        batch = self._unacknowledged.pop(number, None)
        return [] if batch is None else batch.keys

    def send_again(self, after_s: float = RESEND_AFTER_S) -> None:
        """Send batches again that have waited this long for their acknowledgement."""
        now = time.monotonic()
        for batch in self._unacknowledged.values():
            if now - batch.sent_s > after_s:
                batch.sent_s = now
                self._send(batch.number, batch.data)

    @property
    def all_arrived(self) -> bool:
        """Whether the master has everything."""
        return not self._unacknowledged

    @property
    def all_spooled(self) -> bool:
        """Whether all unacknowledged batches are on this machine's disk."""
        return all(batch.spooled for batch in self._unacknowledged.values())

    def spool(self, older_than_s: float = SPOOL_AFTER_S) -> None:
        """Spool batches that have waited this long for their acknowledgement. Blocks with the disk: call it in a thread. If the
        disk refuses, the records stay in memory."""
        since = time.monotonic() - older_than_s
        try:
            for batch in list(self._unacknowledged.values()):  # copied at once: the event loop adds and removes meanwhile
                if batch.number in self._unacknowledged and not batch.spooled and batch.made_s <= since:
                    self._write(batch)
                    batch.spooled = True
        except OSError as error:
            if not self._reported:
                logger.warning("cannot spool to %s: %s; records are kept only in memory", self.path, error.strerror)
            self._reported = True

    def _write(self, batch: _Batch) -> None:
        import pyarrow as pa

        columns = pa.ipc.read_record_batch(pa.py_buffer(batch.data), schema())
        try:
            self._spools[-1].append(columns)
        except OSError:
            if len(self._spools) > 1:
                raise
            self._spools.append(Spool.in_temp_folder(self.about))
            self._spools[-1].append(columns)

    def close_spool(self) -> None:
        """Note in the spools that they have every record of this worker that the master has not acknowledged."""
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


def _key(record: RequestRecord) -> Key:
    return record.warmup, -1 if record.prompt_index is None else record.prompt_index
