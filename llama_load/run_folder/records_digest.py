"""What run.json says of the tables of a run: that no row was removed and no value changed after
they were written."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from llama_load.outside.foreign_files import open_foreign

BLOCK_BYTES = 1 << 20  # read at once


@dataclass(frozen=True, slots=True)
class RecordsDigest:
    """The rows of requests.parquet and the SHA-256 of the file."""

    rows: int
    sha256: str


def digest_of(file: Path, rows: int) -> RecordsDigest:
    """The digest of a table that has just been written. Raises OSError."""
    return RecordsDigest(rows, sha256_of(file))


def sha256_of(file: Path, most_bytes: float = math.inf) -> str:
    """The SHA-256 of a file of a run folder, as hexadecimal digits.

    Raises OSError, and TooLarge where it has more bytes.
    """
    with open_foreign(file, most_bytes, inside=file.parent) as opened:
        digest = hashlib.sha256()
        while block := opened.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


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
