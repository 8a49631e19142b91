"""Records that could not go where they belong, kept in a folder until `llama-load report RUN --add SPOOL` brings them in."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from llama_load.runs.journal import Journal, JournalContents
from llama_load.runs.manifest import JOURNAL, MANIFEST, SpoolManifest
from llama_load.runs.whole_file import write_whole

if TYPE_CHECKING:
    import pyarrow as pa


class Spool:
    """A folder of a journal and a manifest that says whose records they are. It is made with the first of them."""

    def __init__(self, path: Path, about: SpoolManifest) -> None:
        self.path = path
        self.about = about
        self.records = 0
        self._journal: Journal | None = None

    @classmethod
    def in_temp_folder(cls, about: SpoolManifest) -> Spool:
        """In a new folder of the system's temporary folder. Raises OSError where none can be made."""
        return cls(temp_folder("spool"), about)

    def append(self, batch: pa.RecordBatch) -> None:
        """Keep a batch. Raises OSError when the disk refuses; the spool is then as it was before."""
        if self._journal is None:
            self.path.mkdir(0o700, parents=True, exist_ok=True)
            write_whole(self.path / MANIFEST, msgspec.json.encode(self.about))
            self._journal = Journal(self.path / JOURNAL)
        self._journal.append(batch)
        self.records += batch.num_rows

    def read(self) -> JournalContents:
        """What is in it. (It holds something.)"""
        assert self._journal is not None
        return self._journal.read()

    def discard(self) -> None:
        """What is in it has arrived: it is of no more use."""
        if self._journal is not None:
            self._journal.close()
        for name in (JOURNAL, MANIFEST):
            (self.path / name).unlink(missing_ok=True)
        if self.path.is_dir():
            self.path.rmdir()


def temp_folder(what: str) -> Path:
    """A new folder that only this user can read, where the system puts temporary files."""
    return Path(tempfile.mkdtemp(prefix=f"llama-load-{what}-"))
