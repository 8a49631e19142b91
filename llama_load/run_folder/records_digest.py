"""What run.json says of the table of records: that no row was removed and no value changed after it was written."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RecordsDigest:
    """The rows of requests.parquet and the SHA-256 of the file."""

    rows: int
    sha256: str


def digest_of(file: Path, rows: int) -> RecordsDigest:
    """The digest of a table that has just been written. Raises OSError."""
    with file.open("rb") as opened:
        return RecordsDigest(rows, hashlib.file_digest(opened, "sha256").hexdigest())


def changes_since(written: RecordsDigest, file: Path, rows: int) -> list[str]:
    """What is not as it was written: a sentence each. Raises OSError."""
    if rows != written.rows:
        return [f"{file.name} has {rows} rows, {written.rows} were written"]
    if digest_of(file, rows) != written:
        return [f"{file.name} was changed after it was written"]
    return []
