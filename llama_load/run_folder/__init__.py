"""The run folder: written while the run goes on, read back afterwards, recovered after a crash.

    run.json            the manifest, rewritten as a whole whenever it changes
    requests.arrows     the journal: record batches with checksums; deleted once every record is in
                        the table
    requests.packed.arrows   earlier records of the journal, joined and compressed
    requests.parquet    the table of all records, written at the end
    probes.parquet      the records of probes, which are in no figure of the load (see
                        `llama_load.run_folder.probe_file`)
    server/             a local server's log, its lines about memory, its command
    telemetry.jsonl     samples; telemetry.parquet is made of them at the end (see
                        `llama_load.run_folder.telemetry_file`)

The process that writes a folder holds its lock. All reports read the folder from here, also that of
a run that was killed.

Imports are lazy: who writes only samples needs neither numpy nor msgspec.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llama_load.run_folder.folder_lock import lock_folder
    from llama_load.run_folder.manifest import (
        MANIFEST,
        TABLE,
        Manifest,
        PreflightRow,
        SpoolManifest,
        StageRecord,
        last_with_label,
    )
    from llama_load.run_folder.reading import Run, load_run
    from llama_load.run_folder.whole_file import write_whole
    from llama_load.run_folder.writer import RunWriter

__all__ = [
    "MANIFEST",
    "TABLE",
    "Manifest",
    "PreflightRow",
    "Run",
    "RunWriter",
    "SpoolManifest",
    "StageRecord",
    "last_with_label",
    "load_run",
    "lock_folder",
    "write_whole",
]

# The module of each name.
_MODULES = {
    "lock_folder": "folder_lock",
    "MANIFEST": "manifest",
    "TABLE": "manifest",
    "Manifest": "manifest",
    "PreflightRow": "manifest",
    "SpoolManifest": "manifest",
    "StageRecord": "manifest",
    "last_with_label": "manifest",
    "Run": "reading",
    "load_run": "reading",
    "write_whole": "whole_file",
    "RunWriter": "writer",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        module = import_module(f"llama_load.run_folder.{_MODULES[name]}")
        return getattr(module, name)
    raise AttributeError(f"module 'llama_load.run_folder' has no attribute {name!r}")
