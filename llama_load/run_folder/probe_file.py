"""The records of probes (--probe-rate), in files of their own so that they are in no figure of the
load.

probes.arrows    a journal (see `llama_load.run_folder.journal`), written while the run goes on
probes.parquet   made of it at the end; the same columns as requests.parquet
"""

from __future__ import annotations

from pathlib import Path

from llama_load.ground.arrow import load_arrow
from llama_load.outside.foreign_files import TooLarge
from llama_load.run_folder.foreign_tables import TableLimits, read_records
from llama_load.run_folder.journal import Journal, read_journal
from llama_load.run_folder.observed.foreign_records import BadRecords
from llama_load.run_folder.observed.record import RequestRecord, to_batch
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.whole_file import whole_file

PROBES = "probes.parquet"
PROBE_JOURNAL = "probes.arrows"
# Ten a second, the highest rate, for four days.
MOST_PROBES = 3_500_000
LIMITS = TableLimits(
    cells=len(RequestRecord.__slots__) * MOST_PROBES, decoded_bytes=1 << 30
)


class ProbeJournal:
    """Appends the records of probes to their journal. What the disk refuses is kept and tried again
    with the next one."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / PROBE_JOURNAL
        self._journal: Journal | None = None
        self._kept: list[RequestRecord] = []

    def add(self, record: RequestRecord) -> None:
        """Write a record. Raises nothing."""
        self._kept.append(record)
        try:
            if self._journal is None:
                self._journal = Journal(self._path)
            self._journal.append(to_batch(self._kept))
        except OSError:
            return
        self._kept.clear()

    def close(self) -> int:
        """No more records. The number of records that the disk did not take."""
        if self._journal is not None:
            self._journal.close()
        return len(self._kept)


def load_probes(folder: Path) -> Records | None:
    """The probes of a run folder, finished or not; None if there are none, or they cannot be read.
    Raises nothing."""
    load_arrow()
    try:
        if (folder / PROBES).is_file():
            return Records(read_records(folder / PROBES, LIMITS))
        if (folder / PROBE_JOURNAL).is_file():
            return Records(
                read_journal(folder / PROBE_JOURNAL, LIMITS.decoded_bytes).table
            )
    # pyarrow's exceptions are ValueErrors
    except (OSError, ValueError, IndexError, BadRecords, TooLarge):
        return None
    return None


def write_probes(folder: Path) -> Records | None:
    """Turn the journal into probes.parquet, and return the probes. Raises OSError; the journal is
    kept then."""
    import pyarrow.parquet as pq

    probes = load_probes(folder)
    if probes is not None and (folder / PROBE_JOURNAL).is_file():
        if not (folder / PROBES).is_file():
            with whole_file(folder / PROBES) as file:
                pq.write_table(
                    probes.table, file, compression="zstd", write_page_checksum=True
                )
        (folder / PROBE_JOURNAL).unlink(missing_ok=True)
    return probes
