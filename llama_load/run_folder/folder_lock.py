"""The lock of a run folder: held by the process that writes it, until that finishes or dies."""

from __future__ import annotations

import errno
import os
import sys
import time
import weakref
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: folders cannot be locked there
    fcntl = None  # type: ignore[assignment]

RETRY_S = 0.05
# Errors of flock on file systems that cannot lock a folder (some NFS).
_NO_LOCKS = {
    errno.EBADF,
    errno.EINVAL,
    errno.ENOLCK,
    errno.ENOSYS,
    errno.EOPNOTSUPP,
    errno.EPERM,
}


class FolderLock:
    """A lock on a folder (flock on the folder itself, so that no lock file remains). It ends with
    the process, with this object or by `release`, which may be called twice."""

    def __init__(self, fd: int | None) -> None:
        """`fd`: the locked folder; None: nothing is locked."""
        self.release = weakref.finalize(self, _close, fd)


def _close(fd: int | None) -> None:
    if fd is not None:
        os.close(fd)


def lock_folder(path: Path, *, wait_s: float = 0.0) -> FolderLock | None:
    """Lock a folder; None if another process still holds the lock after `wait_s`. Raises OSError if
    there is no such folder.

    On a system or a file system without locks it warns and returns a lock that excludes nobody.
    """
    if fcntl is None:
        if not path.is_dir():
            raise NotADirectoryError(
                errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)
            )
        _warn(path, "this system has no flock")
        return FolderLock(None)

    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return FolderLock(fd)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                _warn(path, str(error.strerror))
                return FolderLock(fd)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                os.close(fd)
                raise
        if time.monotonic() >= deadline:
            os.close(fd)
            return None
        time.sleep(RETRY_S)


def _warn(path: Path, why: str) -> None:
    print(
        f"{path} cannot be locked ({why}): start no other run or report in it before this one "
        "ends",
        file=sys.stderr,
    )
