"""A worker's records on their way to the master: numbered, and kept until the master has them on its disk."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from llama_load.dispatch.leases import Key
from llama_load.record import RequestRecord, schema, to_batch
from llama_load.runs import JOURNAL, MANIFEST, Journal, SpoolManifest

logger = logging.getLogger(__name__)

RESEND_AFTER_S = 5.0
# What the master acknowledges within this time is never spooled: a healthy run writes nothing on the workers' disks.
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
    """Takes batches from a `Recorder` and sends them; what is not acknowledged is sent again, and spooled.

    The spool is a small run folder beside the worker: a journal and who wrote it. It is removed when everything has arrived;
    else `llama-load report RUN --add SPOOL` brings it in.
    """

    def __init__(self, path: Path, about: SpoolManifest, send: Callable[[int, bytes], None]) -> None:
        self.path = path
        self.about = about
        self._send = send
        self._journal: Journal | None = None
        self._unacknowledged: dict[int, _Batch] = {}
        self._told = False
        self.batches = 0

    def append(self, records: Sequence[RequestRecord]) -> None:
        """Send these records."""
        self.batches += 1
        data, now = to_batch(records).serialize().to_pybytes(), time.monotonic()
        self._unacknowledged[self.batches] = _Batch(self.batches, data, [_key(record) for record in records], now, now)
        self._send(self.batches, data)

    def acknowledged(self, number: int) -> list[Key]:
        """The master has this batch on its disk: the requests in it."""
        batch = self._unacknowledged.pop(number, None)
        return [] if batch is None else batch.keys

    def send_again(self, after_s: float = RESEND_AFTER_S) -> None:
        """Send what has waited for its acknowledgement for so long."""
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
        """Whether what the master has not got is on this machine's disk."""
        return all(batch.spooled for batch in self._unacknowledged.values())

    def spool(self, older_than_s: float = SPOOL_AFTER_S) -> None:
        """Write down what has waited for its acknowledgement for so long. Blocks while the disk does: call it in a thread. A disk
        that refuses costs the spool, not the records."""
        since = time.monotonic() - older_than_s
        try:
            for batch in [batch for batch in self._unacknowledged.values() if not batch.spooled and batch.made_s <= since]:
                self._write(batch)
                batch.spooled = True
        except OSError as error:
            if not self._told:
                logger.warning("cannot spool to %s: %s; records are kept in memory alone", self.path, error.strerror)
            self._told = True

    def _write(self, batch: _Batch) -> None:
        import pyarrow as pa

        if self._journal is None:
            self.path.mkdir(parents=True, exist_ok=True)
            (self.path / MANIFEST).write_bytes(msgspec.json.encode(self.about))
            self._journal = Journal(self.path / JOURNAL)
        self._journal.append(pa.ipc.read_record_batch(pa.py_buffer(batch.data), schema()))

    def discard_spool(self) -> None:
        """Everything has arrived: the spool is of no more use."""
        if self._journal is not None:
            self._journal.close()
            (self.path / JOURNAL).unlink(missing_ok=True)
            (self.path / MANIFEST).unlink(missing_ok=True)
            self.path.rmdir()


def _key(record: RequestRecord) -> Key:
    return record.warmup, -1 if record.prompt_index is None else record.prompt_index
