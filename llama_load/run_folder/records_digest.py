"""What run.json says of the tables of a run: that no row was removed and no value changed after
they were written."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RecordsDigest:
    """The rows of requests.parquet and the SHA-256 of the file."""

    rows: int
    sha256: str


def digest_of(file: Path, rows: int) -> RecordsDigest:
    """The digest of a table that has just been written. Raises OSError."""
    return RecordsDigest(rows, sha256_of(file))


def sha256_of(file: Path) -> str:
    """The SHA-256 of a file, as hexadecimal digits. Raises OSError."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def digests_of(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """The digests of those of these files that the folder has. Raises OSError."""
    return {
        name: sha256_of(folder / name) for name in names if (folder / name).is_file()
    }


def changes_since(written: RecordsDigest, file: Path, rows: int) -> list[str]:
    """What is not as it was written: a sentence each. Raises OSError."""
    if rows != written.rows:
        return [f"{file.name} has {rows} rows, {written.rows} were written"]
    if digest_of(file, rows) != written:
        return [f"{file.name} was changed after it was written"]
    return []
