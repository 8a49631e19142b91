"""The run folder: written while the run goes on, read back afterwards, recovered after a crash.

    run.json            the manifest, rewritten as a whole whenever it changes
    requests.arrows     the journal: record batches with checksums; deleted once every record is in the table
    requests.packed.arrows   earlier records of the journal, joined and compressed
    requests.parquet    the table of all records, written at the end
    probes.parquet      the records of probes, which are in no figure of the load (see `llama_load.run_folder.probe_file`)
    server/             a local server's log, its lines about memory, its command
    telemetry.jsonl     samples; telemetry.parquet is made of them at the end (see `llama_load.run_folder.telemetry_file`)

The process that writes a folder holds its lock. All reports read the folder from here, also that of a run that was killed.
"""

from llama_load.run_folder.folder_lock import FolderLock, lock_folder
from llama_load.run_folder.journal import Journal
from llama_load.run_folder.manifest import (
    JOURNAL,
    MANIFEST,
    PACKED,
    RUNNING,
    TABLE,
    Aborted,
    Manifest,
    PreflightRow,
    SpoolManifest,
    StageRecord,
    UntilEnd,
    UsersAsked,
    last_with_label,
    read_manifest,
    write_manifest,
)
from llama_load.run_folder.probe_file import PROBES, ProbeJournal
from llama_load.run_folder.reading import Run, add_spool, load_run, recover
from llama_load.run_folder.server_files import ServerFiles, write_server_files
from llama_load.run_folder.spool import Spool
from llama_load.run_folder.telemetry_file import SAMPLES, TELEMETRY
from llama_load.run_folder.whole_file import write_whole
from llama_load.run_folder.writer import RunWriter, open_run

__all__ = [
    "JOURNAL",
    "MANIFEST",
    "PACKED",
    "PROBES",
    "RUNNING",
    "SAMPLES",
    "TABLE",
    "TELEMETRY",
    "Aborted",
    "FolderLock",
    "Journal",
    "Manifest",
    "PreflightRow",
    "ProbeJournal",
    "Run",
    "RunWriter",
    "ServerFiles",
    "Spool",
    "SpoolManifest",
    "StageRecord",
    "UntilEnd",
    "UsersAsked",
    "add_spool",
    "last_with_label",
    "load_run",
    "lock_folder",
    "open_run",
    "read_manifest",
    "recover",
    "write_manifest",
    "write_server_files",
    "write_whole",
]
