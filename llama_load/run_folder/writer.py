"""Writing a run folder: it is locked, appended to, finished."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from llama_load.ground.arrow import release_unused
from llama_load.ground.errors import UsageError
from llama_load.run_folder.folder_lock import FolderLock, lock_folder
from llama_load.run_folder.manifest import (
    JOURNAL,
    MANIFEST,
    PACKED,
    TABLE,
    Manifest,
    SpoolManifest,
    write_manifest,
)
from llama_load.run_folder.observed.losses import DamagedJournal
from llama_load.run_folder.observed.record import RequestRecord, schema, to_batch
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.observed.telemetry_series import Telemetry
from llama_load.run_folder.probe_file import load_probes, write_probes
from llama_load.run_folder.reading import Run, note_damage, write_finished
from llama_load.run_folder.run_journal import RunJournal
from llama_load.run_folder.spool import Spool, temp_folder
from llama_load.run_folder.telemetry_file import load_telemetry, write_telemetry

if TYPE_CHECKING:
    import pyarrow as pa


class FolderTaken(UsageError):
    """The folder belongs to another run."""


# Permissions of run folders; files in them have no more.
PUBLIC = 0o750
PRIVATE = 0o700


class RunWriter:
    """Writes one run folder, which it keeps locked. `append` as records arrive, `finish` once, then
    `release`.

    Records that the folder's disk refuses can go to a spool in the system's temporary folder.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        """Create the folder. Raises UsageError if it cannot be written, FolderTaken if it holds a
        run or other files."""
        self.path = path
        self.manifest = manifest
        self.appended = 0
        self._journal: RunJournal | None = None
        self._spool: Spool | None = None
        self._kept: list[pa.RecordBatch] = []
        try:
            self._make_folder()
            self._lock: FolderLock | None = lock_folder(path)
            if self._lock is None:
                raise FolderTaken(
                    f"another run is being written to {path}; choose another --run-dir or wait "
                    "until it ends"
                )
            if any((path / name).exists() for name in (MANIFEST, JOURNAL, TABLE)):
                raise FolderTaken(
                    f"{path} already holds a run; choose another --run-dir or move it away"
                )
            if any(path.iterdir()):
                raise FolderTaken(
                    f"{path} already holds other files; choose a new or empty folder as --run-dir"
                )
            self.write_manifest()
        except OSError as error:
            raise UsageError(
                f"cannot write the run folder {path}: {error.strerror}; choose another --run-dir"
            ) from None

    def write_manifest(self) -> None:
        """Write the manifest, whole or not at all."""
        write_manifest(self.path, self.manifest)

    def append(
        self, records: Sequence[RequestRecord], *, anywhere: bool = False
    ) -> None:
        """Add records to the journal. Raises OSError if the disk refuses; `anywhere`: only if the
        temporary folder does, too."""
        self.append_batch(to_batch(records), anywhere=anywhere)

    def append_batch(self, batch: pa.RecordBatch, *, anywhere: bool = False) -> None:
        """The same for packed columns."""
        try:
            if self._journal is None:
                self._make_folder()  # it may have been removed
                self._journal = RunJournal(self.path)
            self._journal.append(batch)
        except OSError as error:
            if not anywhere:
                raise
            self._append_to_spool(batch, error)
        self.appended += batch.num_rows

    def _append_to_spool(self, batch: pa.RecordBatch, why: OSError) -> None:
        if self._spool is None:
            self._spool = Spool.in_temp_folder(
                SpoolManifest("local", clock_offset_ns=0)
            )
            print(
                f"cannot write to {self.path}: {why.strerror}; records go to {self._spool.path}. "
                "If the run is not finished, "
                f"add them with 'llama-load report {self.path} --add {self._spool.path}'",
                file=sys.stderr,
            )
        self._spool.append(batch)

    def keep(self, batch: pa.RecordBatch) -> None:
        """Keep a batch that no disk takes in memory until `finish`."""
        self._kept.append(batch)

    def finish(self) -> Run:
        """Write the table and the final manifest, and return the run.

        The journal is kept if the table lacks some of its records. If the folder's disk refuses,
        the run goes to the system's temporary folder, and `Run.unwritten` is a sentence about it.
        Raises nothing: the records are in memory.
        """
        table = self._read_back()
        try:
            self._make_folder()
            telemetry = self._finish_telemetry()
            probes = self._finish_probes()
            write_finished(self.path, self.manifest, table)
        except OSError as error:
            return self._finish_elsewhere(
                table, f"cannot write to {self.path}: {error.strerror or error}"
            )
        self._discard_spool()
        return Run(
            self.path,
            self.manifest,
            Records(table),
            recovered=False,
            telemetry=telemetry,
            probes=probes,
        )

    def _finish_probes(self) -> Records | None:
        try:
            return write_probes(self.path)
        except OSError:
            return load_probes(self.path)

    def _finish_telemetry(self) -> Telemetry:
        try:
            return write_telemetry(self.path)
        except OSError as error:
            telemetry = load_telemetry(self.path)
            return replace(
                telemetry,
                notes=[
                    *telemetry.notes,
                    f"telemetry.parquet cannot be written: {error.strerror or error}",
                ],
            )

    def _make_folder(self) -> None:
        """Readable by owner and group; with --save-texts only by the owner."""
        self.path.mkdir(PUBLIC, parents=True, exist_ok=True)
        if self.manifest.options.get("save_texts"):
            self.path.chmod(PRIVATE)

    def _read_back(self) -> pa.Table:
        import pyarrow as pa

        tables = [pa.Table.from_batches(self._kept, schema())]
        spooled = self._spool.records if self._spool is not None else 0
        if self._journal is not None:
            contents = self._journal.read()
            tables.insert(0, contents.table())
            missing = max(0, self.appended - spooled - tables[0].num_rows)
            note_damage(
                self.manifest,
                PACKED,
                contents.packed,
                missing if contents.packed.gaps else 0,
            )
            note_damage(
                self.manifest,
                JOURNAL,
                contents.recent,
                0 if contents.packed.gaps else missing,
            )
        if self._spool is not None and spooled:
            in_spool = self._spool.read()
            missing = max(0, spooled - in_spool.table.num_rows)
            note_damage(
                self.manifest, str(self._spool.path / JOURNAL), in_spool, missing
            )
            tables.append(in_spool.table)
        release_unused()
        return pa.concat_tables(tables)

    def _finish_elsewhere(self, table: pa.Table, why: str) -> Run:
        path = self.path
        self.manifest.digests = None
        try:
            path = temp_folder("run")
            write_finished(path, self.manifest, table)
        except OSError:
            add = f" --add {self._spool.path}" if self._spool is not None else ""
            kept = sum(batch.num_rows for batch in self._kept)
            lost = (
                f"; {kept} of {table.num_rows} records are in no file" if kept else ""
            )
            self._note_unwritten(kept)
            sentence = f"{why}; make room there and run 'llama-load report {self.path}{add}'{lost}"
            return Run(
                self.path,
                self.manifest,
                Records(table),
                recovered=True,
                unwritten=sentence,
            )
        self._discard_spool()
        sentence = (
            f"{why}; the whole run is in {path} instead: move it where there is room"
        )
        return Run(
            path, self.manifest, Records(table), recovered=False, unwritten=sentence
        )

    def _note_unwritten(self, records: int) -> None:
        """For a later report: how the run ended, and how many records no disk took. There is often
        room for that much."""
        if records:
            self.manifest.damaged.append(DamagedJournal(JOURNAL, 0, 0, records))
        with suppress(OSError):
            self.write_manifest()

    def _discard_spool(self) -> None:
        if self._spool is not None and not any(
            str(self._spool.path) in damaged.file for damaged in self.manifest.damaged
        ):
            self._spool.discard()

    def discard(self) -> None:
        """Remove the folder of a run that has not begun."""
        self.release()
        with suppress(OSError):
            (self.path / MANIFEST).unlink()
            self.path.rmdir()  # if there is nothing else in it

    def release(self) -> None:
        """Close the journal and unlock the folder."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        if self._lock is not None:
            self._lock.release()


def open_run(first: Path, manifest: Manifest) -> RunWriter:
    """A writer for the folder `first`, or if that is taken for first-2, -3, … Raises UsageError if
    it cannot be written."""
    path = first
    number = 1
    while True:
        try:
            return RunWriter(path, manifest)
        except FolderTaken:
            number += 1
            path = first.with_name(f"{first.name}-{number}")
