"""The folder of a sweep.

| file | what it holds |
|---|---|
| plan.yaml | the plan, as given (or made from --serve and --vary) |
| cells.jsonl | a journal: a line per cell that has ended; a killed sweep continues from it |
| about.json | the keys of the cells, and the version |
| runs/CELL/ | the run folder of a cell, and CELL.log, what Locust printed |
| servers/NAME/ | what a server printed |
| sweep.json, table.md, sweep.html | the comparison |
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from llama_load.ground.errors import UsageError
from llama_load.lab.sweep.cells import Cell
from llama_load.outside.foreign_files import (
    LeadsOutsideError,
    TooLarge,
    begin_of,
    read_foreign,
    refuse_links_out,
)
from llama_load.outside.foreign_json import decode_foreign
from llama_load.outside.foreign_text import redacted, redacted_bytes
from llama_load.run_folder import lock_folder, write_whole
from llama_load.run_folder.folder_lock import FolderLock

PLAN = "plan.yaml"
CELLS = "cells.jsonl"
ABOUT = "about.json"
RUNS = "runs"
SERVERS = "servers"
# Of an entry of the journal.
DONE = "done"
FAILED = "failed"
PERPLEXITY = "perplexity"
NOT_RUN = "not run"
MOST_JOURNAL_BYTES = 256 << 20


class Ended(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the journal: a cell that ended (done or failed), or the perplexity of a server."""

    key: str
    status: str
    title: str = ""
    reason: str = ""
    exit_code: int | None = None
    took_s: float = 0.0
    extra: dict[str, float] = {}
    extra_reasons: dict[str, str] = {}
    notes: list[str] = []
    disturbed: str = ""  # what other programs did, where the run itself does not say


class About(msgspec.Struct, frozen=True):
    """The keys of the cells that the sweep has: changed plans are recognized by them."""

    cells: list[str]
    version: str


class SweepFolder:
    """An open sweep folder; nobody else may write to it."""

    def __init__(self, path: Path, lock: FolderLock, ended: dict[str, Ended]) -> None:
        self.path = path
        self._lock = lock
        self.ended = ended
        self.runs = path / RUNS
        self.servers = path / SERVERS

    def note(self, entry: Ended) -> None:
        """Append an entry to the journal, synced to disk."""
        line = redacted_bytes(msgspec.json.encode(entry)) + b"\n"
        with (self.path / CELLS).open("ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self.ended[entry.key] = entry

    def run_of(self, cell: Cell) -> Path:
        """The run folder of a cell."""
        return self.runs / cell.folder

    def put_aside(self, cell: Cell, word: str = "unfinished") -> None:
        """Rename the folder of an earlier try: CELL.unfinished-1.

        `word`: what it was, in the name.
        """
        folder = self.run_of(cell)
        if not folder.exists():
            return
        number = 1
        aside = folder.with_name(f"{folder.name}.{word}-{number}")
        while aside.exists():
            number += 1
            aside = folder.with_name(f"{folder.name}.{word}-{number}")
        folder.rename(aside)

    def close(self) -> None:
        """Give the folder free."""
        self._lock.release()


def open_folder(
    path: Path,
    cells: Sequence[Cell],
    plan_text: bytes,
    version: str,
    *,
    accept_changes: bool = False,
) -> SweepFolder:
    """A new sweep folder, or one to continue.

    UsageError: it holds something else, another sweep writes to it, or its plan has changed and
    that was not accepted.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"the folder {path} cannot be made: {error.strerror}; give another --out"
        ) from None
    if any(path.iterdir()) and not (path / ABOUT).is_file():
        raise UsageError(
            f"{path} has other files; give --out a new folder, or that of a sweep to continue it"
        )
    lock = lock_folder(path)
    if lock is None:
        raise UsageError(
            f"another sweep writes to {path}; wait for its end, or give another --out"
        )

    try:
        about = About([cell.key for cell in cells], version)
        if not accept_changes:
            _refuse_changes(path, about)
        _make_parts(path)
        write_whole(path / PLAN, plan_text)
        write_whole(path / ABOUT, msgspec.json.encode(about))
        return SweepFolder(path, lock, read_journal(path))
    except BaseException:
        lock.release()
        raise


def _make_parts(path: Path) -> None:
    """The folders in it. UsageError: one cannot be made; or a link in the folder leads out: of one
    that came from elsewhere files would be read, or written, at another place."""
    try:
        refuse_links_out(path)
        for folder in (path / RUNS, path / SERVERS):
            folder.mkdir(exist_ok=True)
    except (LeadsOutsideError, TooLarge) as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        why = error.strerror or error
        raise UsageError(
            f"the folder {path} cannot be made: {why}; give another --out"
        ) from None


def _refuse_changes(path: Path, about: About) -> None:
    """UsageError: the folder was begun with other cells."""
    before = _about(path)
    if before is None or sorted(before.cells) == sorted(about.cells):
        return
    same = len(set(before.cells) & set(about.cells))
    raise UsageError(
        f"the plan has changed since {path} was begun: "
        f"{same} of its {len(about.cells)} cells are the same; "
        "give another --out, or --accept-changes to keep those and run the others"
    )


def read_journal(path: Path) -> dict[str, Ended]:
    """The entries by key, the last one of each. A line that a crash cut off is left out."""
    ended: dict[str, Ended] = {}
    try:
        lines = begin_of(path / CELLS, MOST_JOURNAL_BYTES, inside=path).split(b"\n")
    except OSError:
        return ended
    for line in lines:
        try:
            entry = decode_foreign(line, Ended)
        except (ValueError, RecursionError):
            continue
        ended[entry.key] = entry
    return ended


def _about(path: Path) -> About | None:
    try:
        return decode_foreign(read_foreign(path / ABOUT, inside=path), About)
    except (
        OSError,
        ValueError,
        RecursionError,
    ):  # msgspec's exceptions are ValueErrors
        return None


def write_text(file: Path, text: str) -> None:
    """Write a file at once, without the secrets that are known."""
    write_whole(file, redacted(text).encode())


def write_json(file: Path, value: object) -> None:
    """Write a value as indented JSON; see `write_text`."""
    indented = msgspec.json.format(msgspec.json.encode(value), indent=1)
    write_text(file, indented.decode() + "\n")
