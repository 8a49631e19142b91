"""Reading a run folder, finishing it after a crash, and adding records that workers could not
deliver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llama_load.ground.arrow import load_arrow, release_unused
from llama_load.ground.errors import RunError, UsageError
from llama_load.outside.budget import TooMuchWork
from llama_load.outside.foreign_files import TooLarge, open_foreign, read_foreign
from llama_load.outside.foreign_json import decode_foreign
from llama_load.run_folder.foreign_tables import WHOLE_TABLE, TableLimits, read_records
from llama_load.run_folder.journal import JournalContents, read_journal
from llama_load.run_folder.manifest import (
    JOURNAL,
    MANIFEST,
    PACKED,
    RUNNING,
    TABLE,
    Manifest,
    SpoolManifest,
    read_manifest,
    write_manifest,
)
from llama_load.run_folder.observed.foreign_records import BadRecords
from llama_load.run_folder.observed.losses import DamagedJournal
from llama_load.run_folder.observed.recomputed import recomputed
from llama_load.run_folder.observed.record import CANCELLED, INSTANTS
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.observed.telemetry_series import Telemetry
from llama_load.run_folder.probe_file import PROBES, load_probes, write_probes
from llama_load.run_folder.records_digest import changes_since, digest_of, digests_of
from llama_load.run_folder.result_schemas import PARQUET_KEY, REQUESTS, VERSIONS
from llama_load.run_folder.run_journal import read_run_journal
from llama_load.run_folder.telemetry_file import (
    TELEMETRY,
    load_telemetry,
    write_telemetry,
)
from llama_load.run_folder.whole_file import discard_unfinished, whole_file

if TYPE_CHECKING:
    import pyarrow as pa

# Rows of a Parquet row group: 10 million tokens of long answers.
ROW_GROUP = 10_000
# Parquet's name of the gaps between tokens. Of floats that hardly ever repeat a dictionary is of no
# use; with their bytes split by place, a million requests take 3 s instead of 8, and three quarters
# of the bytes.
GAPS = "itl_ms.list.element"
# Of these run.json notes the digests.
DIGESTED = (TELEMETRY, PROBES)


@dataclass(frozen=True, slots=True)
class Run:
    """A run read from its folder. `recovered`: it was never finished; `unwritten`: a sentence why
    the folder is incomplete."""

    path: Path
    manifest: Manifest
    records: Records
    recovered: bool
    unwritten: str | None = None
    telemetry: Telemetry = field(default_factory=Telemetry)
    probes: Records | None = None  # None: without --probe-rate, or they cannot be read
    # how the records are not as they were written; None: not known, run.json has no digest
    changed: Sequence[str] | None = ()


def load_run(path: Path, limits: TableLimits = WHOLE_TABLE) -> Run:
    """Read a run folder, finished or not. Raises UsageError if it is not a run folder, RunError if
    it is damaged or too large."""
    load_arrow()
    manifest = read_manifest(path)
    if not (path / TABLE).is_file():
        try:
            for name in (JOURNAL, PACKED):
                if (path / name).is_file():
                    open_foreign(path / name, limits.decoded_bytes, inside=path).close()
            contents = read_run_journal(path, limits.decoded_bytes)
        except OSError as error:
            raise RunError(
                f"{error.filename or path / JOURNAL} cannot be read: {error.strerror}"
            ) from None
        except (TooLarge, TooMuchWork) as error:
            raise RunError(f"{path} cannot be read: {error}") from None
        if not (
            path / TABLE
        ).is_file():  # else the run ended while the journal was read
            for file, part in contents.by_file().items():
                note_damage(manifest, file, part)
            table = contents.table()
            release_unused()
            return Run(
                path,
                manifest,
                Records(table),
                recovered=True,
                telemetry=load_telemetry(path),
                probes=load_probes(path),
            )
        manifest = read_manifest(path)
    try:
        records, changed = recomputed(Records(read_records(path / TABLE, limits)))
        if manifest.records is not None:
            changed = [
                *changes_since(manifest.records, path / TABLE, len(records)),
                *changed,
            ]
    except (
        OSError,
        ValueError,
        IndexError,
        BadRecords,
    ) as error:  # pyarrow's exceptions are such
        raise RunError(f"{path / TABLE} cannot be read: {error}") from None
    release_unused()
    is_known = manifest.records is not None or bool(changed)
    return Run(
        path,
        manifest,
        records,
        recovered=False,
        telemetry=load_telemetry(path),
        probes=load_probes(path),
        changed=changed if is_known else None,
    )


def recover(run: Run) -> Run:
    """Finish a run whose process was killed: write its tables and manifest. Raises OSError."""
    if run.manifest.end == RUNNING:
        run.manifest.end = "interrupted"
    telemetry = write_telemetry(run.path)
    probes = write_probes(run.path)
    write_finished(run.path, run.manifest, run.records.table)
    return replace(run, recovered=False, telemetry=telemetry, probes=probes)


def write_finished(folder: Path, manifest: Manifest, table: pa.Table) -> None:
    """Write the table and the manifest, each whole; then delete the journal if the table has all of
    it. Raises OSError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    version = str(VERSIONS[REQUESTS]).encode()
    metadata = (table.schema.metadata or {}) | {PARQUET_KEY: version}
    with whole_file(folder / TABLE) as file:
        pq.write_table(
            table.replace_schema_metadata(metadata),
            file,
            compression="zstd",
            row_group_size=ROW_GROUP,
            write_page_checksum=True,
            use_dictionary=[
                item.name for item in table.schema if pa.types.is_string(item.type)
            ],
            use_byte_stream_split=[GAPS],
        )
    manifest.records = digest_of(folder / TABLE, table.num_rows)
    if manifest.digests is None:
        manifest.digests = digests_of(folder, DIGESTED)
    write_manifest(folder, manifest)
    for name in (TABLE, MANIFEST):
        discard_unfinished(folder / name)
    if not any(damaged.file in (JOURNAL, PACKED) for damaged in manifest.damaged):
        for name in (JOURNAL, PACKED):
            (folder / name).unlink(missing_ok=True)


def note_damage(
    manifest: Manifest, file: str, contents: JournalContents, missing: int | None = None
) -> None:
    """Note in the manifest what could not be read of a journal. `missing`: the number of records
    written that are not there, if known; else the number that the manifest notes stays."""
    if missing is None:
        noted = 0
        for damaged in manifest.damaged:
            if damaged.file == file:
                noted += damaged.records or 0
        missing = noted or None

    manifest.damaged = [damaged for damaged in manifest.damaged if damaged.file != file]
    if contents.gaps or missing:
        manifest.damaged.append(
            DamagedJournal(file, len(contents.gaps), contents.unreadable_bytes, missing)
        )


def add_spool(run: Run, spool: Path) -> tuple[Run, int]:
    """Add the records of a worker's spool to the run's table; the run with them, and how many were
    added.

    Requests that already have a record are left out. Instants are converted to the master's clock.
    Raises UsageError if the folder is not a spool or has no clock offset.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    about, contents = _read_spool(spool)
    spooled = Records(contents.table)
    is_new = _without_record(spooled, run.records)
    table = spooled.table.filter(pa.array(is_new, pa.bool_()))

    for name in INSTANTS:
        place = table.schema.get_field_index(name)
        table = table.set_column(
            place,
            table.schema.field(place),
            pc.add_checked(table[name], about.clock_offset_ns),
        )
    if about.wall_offset_ns is not None:
        place = table.schema.get_field_index("started_wall_ns")
        started_ns = pc.add_checked(table["started_mono_ns"], about.wall_offset_ns)
        table = table.set_column(place, table.schema.field(place), started_ns)

    returned = set(_prompt_keys(Records(table)))
    for gone in run.manifest.lost:
        # What it sent is on record now, except what it gave up itself.
        is_all = (
            about.is_complete
            and gone.worker == about.worker
            and not contents.gaps
            and not gone.gave_up
        )
        if is_all:
            gone.possibly_sent = []
            gone.possibly_sent_warmup = []
            continue

        gone.possibly_sent = [
            index for index in gone.possibly_sent if (False, index) not in returned
        ]
        gone.possibly_sent_warmup = [
            index
            for index in gone.possibly_sent_warmup
            if (True, index) not in returned
        ]

    if run.manifest.end == RUNNING:
        run.manifest.end = "interrupted"
    note_damage(run.manifest, f"{spool.name}/{JOURNAL}", contents)
    both = pa.concat_tables([run.records.table, table])
    write_finished(run.path, run.manifest, both)
    return replace(run, records=Records(both), recovered=False), int(table.num_rows)


def _prompt_keys(records: Records) -> Iterator[tuple[Any, Any]]:
    """Of each request whether it is of the warm-up, and the number of its prompt there."""
    warmup = records.strings("warmup")
    return zip(warmup, records.strings("prompt_index"), strict=True)


def _without_record(spooled: Records, known: Records) -> list[bool]:
    """Of each spooled request whether none of those on record is it, or was sent in its stead."""
    known_ids = set(known.strings("request_id"))
    ended = known.where(~known.equals("status", CANCELLED))
    ended_keys = set(_prompt_keys(ended))
    ids = spooled.strings("request_id")
    statuses = spooled.strings("status")

    are_new = []
    for request_id, status, key in zip(
        ids, statuses, _prompt_keys(spooled), strict=True
    ):
        _, prompt_index = key
        is_sent_again = (
            status != CANCELLED and prompt_index is not None and key in ended_keys
        )
        are_new.append(request_id not in known_ids and not is_sent_again)
    return are_new


def _read_spool(spool: Path) -> tuple[SpoolManifest, JournalContents]:
    file = spool / MANIFEST
    try:
        about = decode_foreign(
            read_foreign(file, inside=spool) if file.is_file() else b"", SpoolManifest
        )
        contents = read_journal(spool / JOURNAL)
    except TooLarge as error:
        raise UsageError(f"{spool} cannot be read: {error}") from None
    except (
        OSError,
        ValueError,
        RecursionError,
    ):  # msgspec's exceptions are ValueErrors
        raise UsageError(
            f"{spool} is not a worker's spool: its {MANIFEST} is missing or names no worker"
        ) from None
    if about.clock_offset_ns is None:
        raise UsageError(
            f"{spool} has no clock offset (the worker had not yet synchronized with the master): "
            "its records cannot be added"
        )
    return about, contents
