"""Files written whole or not at all, through a temporary name that no other process uses."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from llama_load.ground.open_flags import BINARY, NO_FOLLOW, NOT_INHERITED
from llama_load.outside.foreign_text import redacted_bytes

_NEW = os.O_CREAT | os.O_EXCL | NO_FOLLOW | NOT_INHERITED | BINARY


def new_file(path: Path, flags: int) -> int:
    """The descriptor of a new file with its folder's read and write permissions. Raises OSError if
    the name, or a link, exists."""
    return os.open(path, _NEW | flags, path.parent.stat().st_mode & 0o666)


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that replaces `path` when the block ends, synced to disk. Raises OSError and leaves
    `path` unchanged if that fails. Of several writers the last one wins."""
    unfinished = path.with_name(f"{path.name[:200]}.{secrets.token_hex(4)}.part")
    with os.fdopen(new_file(unfinished, os.O_WRONLY), "wb") as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            unfinished.replace(path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise


def discard_unfinished(path: Path) -> None:
    """Delete what a process that was killed in `whole_file` has left beside `path`. Nobody else may
    be writing it."""
    for unfinished in path.parent.glob(f"{path.name}.????????.part"):
        unfinished.unlink(missing_ok=True)


def write_whole(path: Path, data: bytes) -> None:
    """Write a text, whole or not at all, without known secrets."""
    with whole_file(path) as file:
        file.write(redacted_bytes(data))
