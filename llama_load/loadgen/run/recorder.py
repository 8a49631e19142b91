"""Stores records twice a second, in batches small enough not to hold up the event loop."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import gevent
from gevent.event import Event

from llama_load.run_folder.observed.record import RequestRecord

logger = logging.getLogger(__name__)

FLUSH_EVERY_S = 0.5
# Encoding a record takes about 35 us: this many block the loop for 1 ms; 700 would block it for
# longer than a token gap.
BATCH_RECORDS = 32
# Records kept for a disk that refuses writes, at most: 100 MB with answers of 500 tokens.
MOST_IN_MEMORY = 8_000
PAUSE_S = 0.002


class Recorder:
    """Buffers records and stores them. Refused records are kept and tried again, up to
    `MOST_IN_MEMORY`.

    `store(records, anywhere)` writes them to `path`, `anywhere` to another disk rather than wait.
    It raises OSError when the disk refuses.
    """

    def __init__(
        self,
        store: Callable[[Sequence[RequestRecord], bool], None],
        path: Path,
        every_s: float = FLUSH_EVERY_S,
    ) -> None:
        self._store = store
        self._path = path
        self.every_s = every_s
        self._buffer: list[RequestRecord] = []
        self._closing = Event()
        self._greenlet = gevent.spawn(self._run)
        self._reported = False  # that the disk refuses

    def add(self, record: RequestRecord) -> None:
        """Take a record. Does not block."""
        self._buffer.append(record)

    def _write(self) -> bool:
        """Write the next batch; False if the disk refused it (the records are kept). `add` may be
        called meanwhile."""
        batch = self._buffer[:BATCH_RECORDS]
        try:
            self._store(
                batch, self._closing.is_set() or len(self._buffer) > MOST_IN_MEMORY
            )
        except OSError as error:
            if not self._reported:
                print(
                    f"cannot write to {self._path}: {error.strerror}; records are kept in memory "
                    "and tried again",
                    file=sys.stderr,
                )
            self._reported = True
            return False
        except (
            Exception
        ):  # a record that Arrow refuses must not take the others with it
            logger.exception(
                "a record cannot be stored and is left out; please report this"
            )
            self._one_by_one(batch)
        self._reported = False
        del self._buffer[: len(batch)]
        return True

    def _one_by_one(self, records: list[RequestRecord]) -> None:
        for record in records:
            with suppress(Exception):
                self._store([record], True)

    def close(self) -> list[RequestRecord]:
        """Stop the regular flushing and write the rest. Returns the records that could not be
        written."""
        self._closing.set()
        self._greenlet.join()  # not killed: it may be in the middle of a batch
        while self._buffer:
            if not self._write():
                break
        return self._buffer

    def _run(self) -> None:
        while not self._closing.wait(self.every_s):
            while self._buffer and self._write():
                gevent.sleep(PAUSE_S)
