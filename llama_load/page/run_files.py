"""Which run folders and files the page may read: run folders directly in one folder, those of this
process, known names."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import IO, Any

from llama_load.ground.errors import UsageError
from llama_load.outside.foreign_files import (
    MOST_JSON_BYTES,
    open_foreign,
    read_foreign_json,
)
from llama_load.outside.foreign_text import printable
from llama_load.run_folder import MANIFEST
from llama_load.run_folder.manifest import RUNNING

REPORT = "report.html"
# Files that can be fetched, and their types. Text is sent as plain text: a browser must not take it
# for a page.
FILES = {
    REPORT: "text/html; charset=utf-8",
    "report.md": "text/plain; charset=utf-8",
    "summary.txt": "text/plain; charset=utf-8",
    "summary.json": "application/json",
    "run.json": "application/json",
    "requests.parquet": "application/vnd.apache.parquet",
    "probes.parquet": "application/vnd.apache.parquet",
    "telemetry.parquet": "application/vnd.apache.parquet",
    "server.log": "text/plain; charset=utf-8",
    "memory.log": "text/plain; charset=utf-8",
}
# Those that are in a folder of the run folder.
IN_FOLDER = {"server.log": "server", "memory.log": "server"}
# What else a run folder holds: with these and `FILES` alone it may be deleted.
ALSO = frozenset(
    ("requests.arrows", "requests.packed.arrows", "telemetry.jsonl", "junit.xml")
)
SERVER = "server"
ALSO_OF_SERVER = frozenset(("command",))
# The newest runs that are listed.
MOST_RUNS = 500
MOST_ENTRIES = 10_000


def _is_of_run(entry: os.DirEntry[str]) -> bool:
    """Whether it is a file of a run folder, or its folder about the server; never a link."""
    if entry.name == SERVER:
        return entry.is_dir(follow_symlinks=False)
    return entry.name in ALSO | (FILES.keys() - IN_FOLDER.keys()) and entry.is_file(
        follow_symlinks=False
    )


def _is_clear(name: str) -> bool:
    """Whether a page can show the name as it is: it has no control or bidirectional characters,
    with which it would look like another one, also where somebody is asked whether to delete it."""
    return bool(name) and name.isprintable()


class RunFiles:
    """Run folders by name: those in `root`, and those in `own`, which this process has written."""

    def __init__(self, root: Path, own: Mapping[str, Path]) -> None:
        self._root = root
        self._own = own

    def folder(self, name: str) -> Path | None:
        """The run folder of this name; None if there is none that may be read."""
        if name in self._own:
            return self._own[name]
        if name != Path(name).name or name in (".", "..") or not _is_clear(name):
            return None

        path = self._root / name
        try:
            is_run = not path.is_symlink() and (path / MANIFEST).is_file()
        except OSError:
            return None

        return path if is_run else None

    def names(self) -> list[str]:
        """All runs, the newest first."""
        changed: dict[str, float] = {}
        for path in [*self._own.values(), *self._in_root()]:
            try:
                changed.setdefault(path.name, (path / MANIFEST).stat().st_mtime)
            except OSError:
                continue

        return sorted(changed, key=lambda name: changed[name], reverse=True)[:MOST_RUNS]

    def delete(self, name: str) -> None:
        """Delete a run. UsageError: it is not directly in the folder of the runs, has not ended, or
        holds other files."""
        folder = self._root / name
        if (
            self.folder(name) is None
            or folder.is_symlink()
            or not folder.is_dir()
            or name != Path(name).name
        ):
            raise UsageError(
                "only a run directly in the folder of the runs can be deleted here"
            )

        manifest = self.json(name, MANIFEST)
        if manifest is not None and manifest.get("end") == RUNNING:
            raise UsageError(
                "it is still running, or it was killed: llama-load report finishes it; "
                "then it can be deleted"
            )

        with os.scandir(folder) as entries:
            strange = [entry.name for entry in entries if not _is_of_run(entry)]

        if (folder / SERVER).is_dir():
            known = IN_FOLDER.keys() | ALSO_OF_SERVER
            with os.scandir(folder / SERVER) as entries:
                for entry in entries:
                    is_file = entry.is_file(follow_symlinks=False)
                    if not is_file or entry.name not in known:
                        strange.append(f"{SERVER}/{entry.name}")

        if strange:
            raise UsageError(
                f"it holds {printable(strange[0])}, which is no file of a run: delete it by hand"
            )

        shutil.rmtree(folder)

    def _in_root(self) -> list[Path]:
        try:
            with os.scandir(self._root) as entries:
                return [
                    Path(entry.path)
                    for entry in islice(entries, MOST_ENTRIES)
                    if entry.is_dir(follow_symlinks=False) and _is_clear(entry.name)
                ]
        except OSError:
            return []

    def _path(self, name: str, file: str) -> Path | None:
        folder = self.folder(name)
        if folder is None or file not in FILES:
            return None
        parent = folder / IN_FOLDER.get(file, "")
        return None if parent != folder and parent.is_symlink() else parent / file

    def open(self, name: str, file: str) -> IO[bytes] | None:
        """A file of a run, if it is one of `FILES` and no link."""
        path = self._path(name, file)
        if path is None:
            return None

        try:
            return open_foreign(path, math.inf, follows_links=False)
        except OSError:
            return None

    def json(self, name: str, file: str) -> dict[str, Any] | None:
        """A JSON object of a run; None if there is none that can be read."""
        path = self._path(name, file)
        try:
            return (
                None if path is None else read_foreign_json(path, follows_links=False)
            )
        except (OSError, ValueError):
            return None

    def text(self, name: str, file: str) -> str:
        """A text of a run; empty if there is none."""
        opened = self.open(name, file)
        if opened is None:
            return ""
        with opened:
            return opened.read(MOST_JSON_BYTES).decode("utf-8", "replace")

    def present(self, name: str) -> list[str]:
        """The files of a run that can be fetched."""
        paths = {file: self._path(name, file) for file in FILES}
        return [
            file
            for file, path in paths.items()
            if path is not None and path.is_file() and not path.is_symlink()
        ]
