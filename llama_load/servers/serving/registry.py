"""The servers that we have started on this machine.

One small file per port, in a folder that only its user may enter.

A load test against a loopback port finds the server's process, command, log and RPC workers here. A
file is trusted only if it and its process are ours, the process is the one that was started, and it
listens on that port.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import msgspec
import psutil

from llama_load.ground.cache_folder import cache_folder
from llama_load.ground.open_flags import NO_FOLLOW, NO_WAIT
from llama_load.outside.foreign_text import printable_json, printable_lines

MOST_BYTES = 256 * 1024
# psutil computes the time a process was created from a clock tick: two readings differ by less.
SAME_TIME_S = 1.0
LOGS_KEPT_S = 86400.0
ENDED_KEPT_S = 3600.0


@dataclass(frozen=True, slots=True)
class Entry:
    """A server that we have started. Commands hold no secrets."""

    port: int
    pid: int  # of the process that listens
    created_s: float  # when that process was created, Unix time
    command: tuple[str, ...]
    log: str
    rpc: tuple[str, ...] = ()  # addresses of the RPC workers it was to use
    # from the start of its process until it was ready, seconds
    start_s: float | None = None
    ended: str = ""  # why it ended, unless it was stopped
    # bytes in use before its start, by the GPU's UUID
    gpu_memory_before: Mapping[str, int] = field(default_factory=dict)


def folder() -> Path:
    """The folder of the files, per machine, because a home folder may be shared. Mode 0700.

    Raises OSError where it cannot be created: in a container the user often has no home folder, or
    one that is read-only."""
    try:
        path = cache_folder() / "servers" / socket.gethostname()
    except RuntimeError as error:  # the user has no home folder
        raise FileNotFoundError(errno.ENOENT, str(error)) from None
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


def log_folder(port: int) -> Path:
    """Where the logs of the server on this port are kept until the next one takes it.

    Logs of a day ago and older are removed. Without a folder of ours: a new one below the system's
    temporary folder.
    """
    try:
        logs = folder() / "logs"
    except OSError:
        return Path(tempfile.mkdtemp(prefix="llama-load-logs-")) / str(port)

    for old in logs.glob("*"):
        with suppress(OSError):
            written_s = max(file.stat().st_mtime for file in (old, *old.iterdir()))
            if time.time() - written_s > LOGS_KEPT_S:
                shutil.rmtree(old)
    return logs / str(port)


def write(entry: Entry) -> None:
    """Write an entry, and remove those of servers that are gone."""
    for old in folder().glob("*.json"):
        with suppress(OSError):
            if not _is_kept(old):
                old.unlink()

    path = _path_of_port(entry.port)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW
    with os.fdopen(os.open(unfinished, how, 0o600), "w") as file:
        json.dump(asdict(entry), file)
    unfinished.replace(path)


def _is_kept(path: Path) -> bool:
    """Whether its server runs, or ended a short time ago: a run may want to know why."""
    entry = _entry_in(path)
    if entry is None:
        return False
    if _is_alive(entry):
        return True
    age_s = time.time() - path.stat().st_mtime
    return bool(entry.ended) and age_s < ENDED_KEPT_S


def mark_ended(port: int, why: str) -> None:
    """Note why the server on this port ended, for a load test that is under way."""
    with suppress(OSError):
        entry = _entry_on(port)
        if entry is not None:
            write(replace(entry, ended=why))


def remove(port: int) -> None:
    """The server was stopped."""
    with suppress(OSError):
        _path_of_port(port).unlink(missing_ok=True)


def find(port: int) -> Entry | None:
    """The server of ours that listens on this port now, if any."""
    entry = _entry_on(port)
    if entry is None or entry.port != port:
        return None
    if not _is_alive(entry) or not listens(entry.pid, port):
        return None
    return entry


def ending_of(entry: Entry) -> str:
    """Why this server, found earlier, has ended, as its supervisor saw it.

    "" if that is not known, or it has not.
    """
    now = _entry_on(entry.port)
    if now is None:
        return ""
    is_same = now.pid == entry.pid and now.created_s == entry.created_s
    return now.ended if is_same else ""


def _path_of_port(port: int) -> Path:
    return folder() / f"{port}.json"


def _entry_on(port: int) -> Entry | None:
    try:
        return _entry_in(_path_of_port(port))
    except OSError:
        return None


def _entry_in(path: Path) -> Entry | None:
    """The entry in a file; None if there is none, it is not ours, or nonsense."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | NO_FOLLOW | NO_WAIT), "rb") as file:
            if not _is_ours(os.fstat(file.fileno())):
                return None
            fields = json.loads(file.read(MOST_BYTES))

        ended = printable_lines(fields["ended"])
        return msgspec.convert(printable_json(fields) | {"ended": ended}, Entry)
    # msgspec's errors are ValueErrors
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def _is_ours(status: os.stat_result) -> bool:
    """Whether it is a file of ours that nobody else may write."""
    others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    is_file = stat.S_ISREG(status.st_mode)
    return status.st_uid == os.getuid() and is_file and not others_write


def _is_alive(entry: Entry) -> bool:
    """Whether its process is the one that was started, and ours."""
    try:
        process = psutil.Process(entry.pid)
        is_same = abs(process.create_time() - entry.created_s) <= SAME_TIME_S
        return bool(is_same and process.uids().real == os.getuid())
    except (psutil.Error, ValueError):
        return False


def listens(pid: int, port: int) -> bool:
    """Whether this process listens on this TCP port."""
    try:
        sockets = psutil.Process(pid).net_connections("tcp")
    except psutil.Error:
        return False
    ports = {each.laddr.port for each in sockets if each.status == psutil.CONN_LISTEN}
    return port in ports
