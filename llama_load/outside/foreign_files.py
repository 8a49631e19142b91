"""Reads files that others may have written: the one door to every path that a person or the page
names.

Regular files alone (a pipe or device would be waited for, or has no end), at most a limit of bytes,
whatever their size on disk says; JSON also by depth and memory (`llama_load.outside.foreign_json`).
`tests/repository/test_foreign_doors.py` finds what opens files elsewhere.
"""

from __future__ import annotations

import errno
import math
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from llama_load.ground.open_flags import BINARY, NO_FOLLOW, NO_WAIT, NOT_INHERITED
from llama_load.outside.budget import spend_bytes
from llama_load.outside.foreign_json import decode_foreign

# run.json and summary.json of the longest runs have some MB; decoded, JSON takes up to twenty times
# its size.
MOST_JSON_BYTES = 32 << 20
# More than any folder of documents, conversations or images.
MOST_FILES = 1_000_000


class TooLarge(ValueError):
    """A file of others exceeds a limit."""


class LeadsOutsideError(ValueError):
    """A link in a folder of others leads to a file outside of it."""


def open_foreign(
    file: Path,
    most_bytes: float,
    *,
    follows_links: bool = True,
    inside: Path | None = None,
) -> IO[bytes]:
    """The file, opened. `inside`: the folder of others that it is in; no link leads out of it.

    Raises OSError if it cannot be read, is a pipe or device, or outside; TooLarge if it has more
    bytes.
    """
    no_link = 0 if follows_links else NO_FOLLOW
    # a pipe would be waited for
    fd = os.open(file, os.O_RDONLY | NO_WAIT | NOT_INHERITED | BINARY | no_link)
    about = os.fstat(fd)
    opened = os.fdopen(fd, "rb") if stat.S_ISREG(about.st_mode) else None
    if opened is None:
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", str(file))
    if inside is not None and not _is_inside(file, about, inside):
        opened.close()
        raise OSError(errno.EACCES, "a link leads out of its folder", str(file))
    if about.st_size > most_bytes:
        opened.close()
        raise TooLarge(
            f"{file.name} has {about.st_size >> 20:,} MiB, over the limit of "
            f"{int(most_bytes) >> 20:,} MiB"
        )
    return opened


def _is_inside(file: Path, opened: os.stat_result, folder: Path) -> bool:
    """Whether what was opened under this name is in the folder.

    Compared with the file itself: the link may have been changed since.
    """
    real = Path(os.path.realpath(file))
    is_below = real.is_relative_to(os.path.realpath(folder))
    return is_below and os.path.samestat(real.lstat(), opened)


def read_foreign(
    file: Path,
    most_bytes: int = MOST_JSON_BYTES,
    *,
    follows_links: bool = True,
    inside: Path | None = None,
) -> bytes:
    """Its bytes. Raises OSError and TooLarge."""
    with open_foreign(
        file, most_bytes, follows_links=follows_links, inside=inside
    ) as opened:
        data = opened.read(most_bytes + 1)
    spend_bytes(decoded=len(data))
    if len(data) > most_bytes:  # it grew
        raise TooLarge(f"{file.name} is over the limit of {most_bytes >> 20:,} MiB")
    return data


def begin_of(file: Path, most_bytes: int, *, inside: Path | None = None) -> bytes:
    """Its first bytes, whatever its size. Raises OSError."""
    with open_foreign(file, math.inf, inside=inside) as opened:
        data = opened.read(most_bytes)
    spend_bytes(decoded=len(data))
    return data


def refuse_link_out(path: Path, folder: Path, root: Path) -> None:
    """Raises LeadsOutsideError where this path in the folder leads out of it. `root`: the folder,
    resolved."""
    # unlike Path.resolve(), it has an answer for links in a circle
    if not Path(os.path.realpath(path)).is_relative_to(root):
        raise LeadsOutsideError(
            f"{path} is a link that leads out of {folder}: put a copy in its place"
        )


def refuse_links_out(folder: Path) -> None:
    """Raises LeadsOutsideError where a link in this folder, however deep, leads out of it, and
    TooLarge where it holds too many files to look at."""
    root = folder.resolve()
    count = 0
    for place, folders, files in os.walk(folder):
        count += len(folders) + len(files)
        if count > MOST_FILES:
            raise TooLarge(f"the folder {folder} has more than {MOST_FILES:,} files")
        for name in (*folders, *files):
            path = Path(place, name)
            if path.is_symlink():
                refuse_link_out(path, folder, root)


def files_below(folder: Path, is_wanted: Callable[[Path], bool] = bool) -> list[Path]:
    """The regular files in a folder and its subfolders that are wanted, sorted; hidden ones are
    left out.

    Raises TooLarge, and LeadsOutsideError for one whose link leads out of the folder: a data set of
    others could name any file of this user.
    """
    root = folder.resolve()
    found = []
    for path in _visible(folder):
        if not is_wanted(path) or not path.is_file():  # a pipe would be waited for
            continue
        refuse_link_out(path, folder, root)
        found.append(path)
        if len(found) > MOST_FILES:
            raise TooLarge(f"the folder {folder} has more than {MOST_FILES:,} files")
    return found


def _visible(folder: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith("."):
                yield Path(root, name)


def is_ours_alone(path: Path, folder: Path) -> bool:
    """Whether this is a file in the folder, or below it, that no other user can change."""
    try:
        real = path.resolve(strict=True)
        root = folder.resolve()
        if not real.is_relative_to(root):
            return False
        parents = [each for each in real.parents if each.is_relative_to(root)]
        return all(map(_only_we_write, (real, *parents)))
    except OSError:
        return False


def _only_we_write(path: Path) -> bool:
    if not hasattr(os, "getuid"):  # Windows
        return True
    status = path.stat()
    if status.st_uid != os.getuid() or status.st_mode & stat.S_IWOTH:
        return False
    return not status.st_mode & stat.S_IWGRP or _is_private_group(status.st_gid)


def _is_private_group(number: int) -> bool:
    """Whether this group is that of this user alone, as many systems make one for each."""
    try:
        import grp
        import pwd

        group = grp.getgrgid(number)
        name = pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        return False
    return group.gr_name == name and set(group.gr_mem) <= {name}


def read_foreign_json(
    file: Path,
    most_bytes: int = MOST_JSON_BYTES,
    *,
    follows_links: bool = True,
    inside: Path | None = None,
) -> dict[str, Any]:
    """The JSON object in it. Raises OSError, and ValueError where it holds none or is too large."""
    data = read_foreign(file, most_bytes, follows_links=follows_links, inside=inside)
    try:
        document = decode_foreign(data)
    except ValueError as error:
        raise ValueError(f"{file.name} cannot be read: {error}") from None
    if not isinstance(document, dict):
        raise ValueError(f"{file.name} holds no JSON object")
    return document
