"""A worker's records on their way to the master: numbered, kept and spooled until the master has them on its disk."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from llama_load.record import RequestRecord, to_batch
from llama_load.runs import JOURNAL, MANIFEST, Journal, SpoolManifest

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

RESEND_AFTER_S = 5.0


@dataclass(slots=True)
class _Batch:
    number: int
    data: bytes
    sent_s: float


class Outbox:
    """Takes batches from a `Recorder` and sends them; what is not acknowledged is sent again.

    The spool is a small run folder beside the worker: a journal and who wrote it. It is removed when everything has arrived;
    else `llama-load report RUN --add SPOOL` brings it in.
    """

    def __init__(self, spool: Path, about: SpoolManifest, send: Callable[[int, bytes], None]) -> None:
        self.path = spool
        self._about = about
        self._send = send
        self._journal: Journal | None = None
        self._unacknowledged: dict[int, _Batch] = {}
        self._spools = True
        self.batches = 0

    def append(self, records: Sequence[RequestRecord]) -> None:
        """Send these records and spool them. A disk that refuses costs the spool, not the records."""
        batch = to_batch(records)
        self.batches += 1
        data = batch.serialize().to_pybytes()
        self._unacknowledged[self.batches] = _Batch(self.batches, data, time.monotonic())
        self._send(self.batches, data)
        if self._spools:
            try:
                self._spool(batch)
            except OSError as error:
                self._spools = False
                logger.warning("cannot spool to %s: %s; records are kept in memory alone", self.path, error.strerror)

    def _spool(self, batch: pa.RecordBatch) -> None:
        if self._journal is None:
            self.path.mkdir(parents=True, exist_ok=True)
            (self.path / MANIFEST).write_bytes(msgspec.json.encode(self._about))
            self._journal = Journal(self.path / JOURNAL)
        self._journal.append(batch)

    def acknowledged(self, number: int) -> None:
        """The master has this batch on its disk."""
        self._unacknowledged.pop(number, None)

    def send_again(self) -> None:
        """Send what has waited for its acknowledgement for too long."""
        now = time.monotonic()
        for batch in self._unacknowledged.values():
            if now - batch.sent_s > RESEND_AFTER_S:
                batch.sent_s = now
                self._send(batch.number, batch.data)

    @property
    def all_arrived(self) -> bool:
        """Whether the master has everything."""
        return not self._unacknowledged

    def discard_spool(self) -> None:
        """Everything has arrived: the spool is of no more use."""
        if self._journal is not None:
            self._journal.close()
            (self.path / JOURNAL).unlink(missing_ok=True)
            (self.path / MANIFEST).unlink(missing_ok=True)
            self.path.rmdir()
