"""The lock of a run folder: held by the process that writes it, until that finishes or dies."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
import time
import weakref
from pathlib import Path

RETRY_S = 0.05
# Errors of flock on file systems that cannot lock a folder (some NFS).
_NO_LOCKS = {errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM}


class FolderLock:
    """A lock on a folder (flock on the folder itself, so that no lock file remains). It ends with the process, with this object
    or by `release`, which may be called twice."""

    def __init__(self, fd: int) -> None:
        self.release = weakref.finalize(self, os.close, fd)


def lock_folder(path: Path, *, wait_s: float = 0.0) -> FolderLock | None:
    """Lock a folder; None if another process still holds the lock after `wait_s`. Raises OSError if there is no such folder.

    On a file system without locks it warns and returns a lock that excludes nobody.
    """
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return FolderLock(fd)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                print(
                    f"{path} cannot be locked ({error.strerror}): start no other run or report in it before this one ends",
                    file=sys.stderr,
                )
                return FolderLock(fd)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                os.close(fd)
                raise
        if time.monotonic() >= deadline:
            os.close(fd)
            return None
        time.sleep(RETRY_S)
