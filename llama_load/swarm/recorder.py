"""From records in memory to the run folder: a batch twice a second."""

from __future__ import annotations

import sys

import gevent

from llama_load.record import RequestRecord
from llama_load.runs import RunWriter

FLUSH_EVERY_S = 0.5


class Recorder:
    """Buffers records and appends them to the run's journal. What cannot be written is kept and tried again."""

    def __init__(self, writer: RunWriter) -> None:
        self._writer = writer
        self._buffer: list[RequestRecord] = []
        self._greenlet = gevent.spawn(self._run)
        self.write_error: OSError | None = None

    def add(self, record: RequestRecord) -> None:
        """Take a record. Does not block."""
        self._buffer.append(record)

    def flush(self) -> bool:
        """Write what is buffered; False if the disk refused (the records are kept)."""
        batch, self._buffer = self._buffer, []
        if not batch:
            return True
        try:
            self._writer.append(batch)
        except OSError as error:
            self._buffer = batch + self._buffer
            if self.write_error is None:
                print(
                    f"cannot write to {self._writer.path}: {error.strerror}; records are kept in memory and tried again",
                    file=sys.stderr,
                )
            self.write_error = error
            return False
        self.write_error = None
        return True

    def close(self) -> bool:
        """Stop the regular flushing and write the rest; False if that failed."""
        self._greenlet.kill()
        return self.flush()

    def _run(self) -> None:
        while True:
            gevent.sleep(FLUSH_EVERY_S)
            self.flush()
