"""The processes of a client: their CPU time and memory while they run, and a limit of it.

Control groups (version 1 or 2) count all processes, also those that a client leaves to themselves.
Where they cannot be made (not root, not Linux), the client's descendants are counted, and there is
no quota.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

from llama_load.units import NS_PER_S, s_to_ns

ROOT = Path("/sys/fs/cgroup")
NAME = f"llama-load-referee-{os.getpid()}"
SAMPLE_S = 0.1
# short, so that a quota is like a slow core and not like pauses of 50 ms
QUOTA_PERIOD_US = 10_000
MIB = 1 << 20


@dataclass
class Usage:
    """Samples of CPU time: (monotonic ns, CPU ns since the start), and the most memory of all
    processes together, MiB.

    Memory is that which is no file (RssAnon); pages that processes share after a fork are counted
    in each.
    """

    cpu: list[tuple[int, int]] = field(default_factory=list)
    memory_mib: float = 0.0

    def cpu_s(self, begin_ns: int | None = None, end_ns: int | None = None) -> float:
        """CPU seconds between two instants, interpolated between samples; without instants all."""
        at, used = np.array(self.cpu, dtype=np.float64).T
        low, high = np.interp([begin_ns or at[0], end_ns or at[-1]], at, used)
        return float(high - low) / NS_PER_S


class ProcessGroup:
    """Put a process into it before it execs (`join`), then `measure` while it runs."""

    def __init__(self, quota: float | None = None) -> None:
        self._folders = _control_groups(quota is not None)
        self.counted = bool(self._folders)
        self._descendants: dict[int, int] = {}
        if quota is not None:
            self._limit(quota)

    def _limit(self, cores: float) -> None:
        limit_us = round(cores * QUOTA_PERIOD_US)
        for folder in self._folders:
            for name, value in (
                ("cpu.max", f"{limit_us} {QUOTA_PERIOD_US}"),
                ("cpu.cfs_period_us", str(QUOTA_PERIOD_US)),
                ("cpu.cfs_quota_us", str(limit_us)),
            ):
                if (folder / name).exists():
                    (folder / name).write_text(value)

    def join(self) -> None:
        """In the child process, before it execs."""
        for folder in self._folders:
            (folder / "cgroup.procs").write_text(str(os.getpid()))

    def pids(self, client: int) -> list[int]:
        if self._folders:
            return [
                int(line)
                for line in (self._folders[0] / "cgroup.procs").read_text().split()
            ]
        with suppress(psutil.Error):
            process = psutil.Process(client)
            return [
                process.pid,
                *(child.pid for child in process.children(recursive=True)),
            ]
        return []

    def cpu_ns(self, client: int) -> int:
        """CPU time of all its processes so far."""
        for folder in self._folders:
            if (folder / "cpuacct.usage").exists():
                return int((folder / "cpuacct.usage").read_text())
            if (folder / "cpu.stat").exists() and "usage_usec" in (
                text := (folder / "cpu.stat").read_text()
            ):
                return int(text.split()[1]) * 1000
        for pid in self.pids(client):
            with suppress(psutil.Error):
                times = psutil.Process(pid).cpu_times()
                self._descendants[pid] = s_to_ns(times.user + times.system)
        return sum(self._descendants.values())

    @contextmanager
    def measure(self, client: int) -> Iterator[Usage]:
        """Sample CPU time and memory in a thread until the block ends."""
        usage, ended = Usage(), threading.Event()

        def sample() -> None:
            while True:
                usage.cpu.append((time.monotonic_ns(), self.cpu_ns(client)))
                usage.memory_mib = max(
                    usage.memory_mib,
                    sum(_anonymous_mib(pid) for pid in self.pids(client)),
                )
                if ended.wait(SAMPLE_S):
                    usage.cpu.append((time.monotonic_ns(), self.cpu_ns(client)))
                    return

        thread = threading.Thread(target=sample)
        thread.start()
        try:
            yield usage
        finally:
            ended.set()
            thread.join()

    def close(self) -> None:
        """Kill what is left of it, and remove it."""
        for folder in self._folders:
            for _ in range(50):
                for pid in (folder / "cgroup.procs").read_text().split():
                    with suppress(ProcessLookupError):
                        os.kill(int(pid), 9)
                with suppress(OSError):
                    folder.rmdir()
                    break
                time.sleep(0.1)


def quota_possible() -> bool:
    """Whether a limit of CPU time can be set here."""
    folders = _control_groups(True)
    for folder in folders:
        folder.rmdir()
    return bool(folders)


def _control_groups(quota: bool) -> list[Path]:
    """Folders of new groups; none where they cannot be made. Version 1's `cpu` is joined only for a
    quota: there a process may have no real-time priority."""
    unified = (ROOT / "cgroup.controllers").exists()
    folders = (
        [ROOT / NAME]
        if unified
        else [ROOT / kind / NAME for kind in ("cpuacct", *(["cpu"] if quota else []))]
    )
    made: list[Path] = []
    try:
        for folder in folders:
            folder.mkdir()
            made.append(folder)
        if quota and not any(
            (folder / name).exists()
            for folder in made
            for name in ("cpu.max", "cpu.cfs_quota_us")
        ):
            raise FileNotFoundError
    except OSError:
        for folder in made:
            folder.rmdir()
        return []
    return made


def _anonymous_mib(pid: int) -> float:
    with suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return (
            int(next(line for line in lines if line.startswith("RssAnon")).split()[1])
            * 1024
            / MIB
        )
    return 0.0
