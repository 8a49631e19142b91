"""The journal of a run folder: recent records as they arrived, earlier ones packed.

Records arrive in batches of 1 to 10, and a batch of 4 takes 2500 to 4200 bytes a record on disk and
0.5 ms to read, whatever it holds. So every thousand records are joined, compressed and appended to
a second file, and the first one is emptied. If the process is killed in between, these records are
in both files; reading leaves them out once.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from llama_load.ground.arrow import release_unused
from llama_load.run_folder.journal import (
    MOST_JOURNAL_BYTES,
    Journal,
    JournalContents,
    parse,
    read_journal,
)
from llama_load.run_folder.manifest import JOURNAL, PACKED

if TYPE_CHECKING:
    import pyarrow as pa

# Records are packed at this number or this many bytes (answers of 4000 tokens): 20 ms, in the
# thread that appends.
PACK_ROWS = 1000
PACK_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class RunContents:
    """What can be read of both files."""

    packed: JournalContents
    recent: JournalContents

    def table(self) -> pa.Table:
        """All records, each once."""
        import pyarrow as pa
        import pyarrow.compute as pc

        earlier = self.packed.table
        recent = self.recent.table
        if earlier.num_rows and recent.num_rows:
            ids = recent["request_id"]
            both = earlier["request_id"].filter(
                pc.is_in(earlier["request_id"], value_set=ids)
            )
            recent = recent.filter(pc.invert(pc.is_in(ids, value_set=both)))
        return pa.concat_tables([earlier, recent])

    def by_file(self) -> dict[str, JournalContents]:
        """The contents of each file by its name."""
        return {PACKED: self.packed, JOURNAL: self.recent}


class RunJournal:
    """Both files, open for writing. Appended batches survive `kill -9`, and while it is open also
    the removal of the folder."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError if the file cannot be created or exists."""
        self._folder = folder
        self._recent = Journal(folder / JOURNAL)
        self._packed: Journal | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._patience = 1  # doubled with each refusal

    def append(self, batch: pa.RecordBatch) -> None:
        """Add a batch; the kernel has it when this returns. Raises OSError if the disk refuses; the
        journal is then unchanged."""
        self._recent.append(batch)
        self._waiting.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if (
            self._rows >= PACK_ROWS * self._patience
            or self._bytes >= PACK_BYTES * self._patience
        ):
            self._pack()

    def _pack(self) -> None:
        """Move the recent records to the packed file. Where the disk refuses that, they stay where
        they are for now."""
        import pyarrow as pa

        try:
            if self._packed is None:
                self._packed = Journal(self._folder / PACKED)
            for batch in (
                pa.Table.from_batches(self._waiting).combine_chunks().to_batches()
            ):
                self._packed.append(batch, packed=True)
        except OSError:
            self._patience *= 2
            return
        with suppress(OSError):  # then they are in both, until the next time
            self._recent.clear()
        self._waiting = []
        self._rows = 0
        self._bytes = 0
        self._patience = 1
        # Else what was joined and compressed stays with malloc, in ever more places: 26 MB after
        # half an hour.
        release_unused()

    def read(self) -> RunContents:
        """Its contents, also if the files have been removed."""
        return RunContents(
            parse(b"") if self._packed is None else self._packed.read(),
            self._recent.read(),
        )

    def close(self) -> None:
        """No more batches."""
        self._recent.close()
        if self._packed is not None:
            self._packed.close()


def read_run_journal(folder: Path, most_bytes: int = MOST_JOURNAL_BYTES) -> RunContents:
    """The contents of both files on disk, also while another process writes them. Raises OSError if
    one cannot be read at all."""
    # first: what is packed meanwhile is in both, not in none
    recent = read_journal(folder / JOURNAL, most_bytes)
    return RunContents(read_journal(folder / PACKED, most_bytes), recent)
