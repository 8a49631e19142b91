"""A spool: a folder of records that could not be delivered, until `llama-load report RUN --add
SPOOL` adds them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from llama_load.run_folder.journal import Journal, JournalContents
from llama_load.run_folder.manifest import JOURNAL, MANIFEST, SpoolManifest
from llama_load.run_folder.whole_file import write_whole

if TYPE_CHECKING:
    import pyarrow as pa


class Spool:
    """A folder with a journal and a manifest that names the worker. It is created with the first
    batch."""

    def __init__(self, path: Path, about: SpoolManifest) -> None:
        self.path = path
        self.about = about
        self.records = 0
        self._journal: Journal | None = None

    @classmethod
    def in_temp_folder(cls, about: SpoolManifest) -> Spool:
        """In a new folder below the system's temporary folder. Raises OSError."""
        return cls(temp_folder("spool"), about)

    def append(self, batch: pa.RecordBatch) -> None:
        """Add a batch. Raises OSError if the disk refuses; the spool is then unchanged."""
        if self._journal is None:
            self.path.mkdir(0o700, parents=True, exist_ok=True)
            write_whole(self.path / MANIFEST, msgspec.json.encode(self.about))
            self._journal = Journal(self.path / JOURNAL)
        self._journal.append(batch)
        self.records += batch.num_rows

    def complete(self) -> None:
        """Note that nothing is missing: no request was sent whose record is neither here nor with
        the master. Raises OSError."""
        if self._journal is not None:
            self.about.is_complete = True
            write_whole(self.path / MANIFEST, msgspec.json.encode(self.about))

    def read(self) -> JournalContents:
        """Its contents. Only after `append`."""
        assert self._journal is not None
        return self._journal.read()

    def discard(self) -> None:
        """Delete it: its records have arrived."""
        if self._journal is not None:
            self._journal.close()
        for name in (JOURNAL, MANIFEST):
            (self.path / name).unlink(missing_ok=True)
        if self.path.is_dir():
            self.path.rmdir()


def temp_folder(what: str) -> Path:
    """A new folder below the system's temporary folder, readable by this user only."""
    return Path(tempfile.mkdtemp(prefix=f"llama-load-{what}-"))
