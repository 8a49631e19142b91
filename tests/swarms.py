"""Real swarms on this machine: a master and workers, each a Locust process of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from llama_load.serving.process import free_port
from tests.conftest import SHAREGPT, Finished, environment


@dataclass
class Swarm:
    """A master and its workers, under way."""

    folder: Path
    port: int
    locustfile: Path
    master: subprocess.Popen[str]
    workers: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def run_dir(self) -> Path:
        return self.folder / "run"

    def add_worker(self, *before: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """One more worker; `before` is put before its command (unshare, ip netns exec)."""
        number = len(self.workers)
        place = self.folder / f"worker-{number}"
        place.mkdir()
        command = [*before, sys.executable, "-m", "locust", "-f", str(self.locustfile), "--worker"]
        command += ["--master-host", "127.0.0.1", "--master-port", str(self.port), "--loglevel", "WARNING"]
        log = (place / "log").open("w")
        process = subprocess.Popen(command, stdout=log, stderr=log, text=True, cwd=place, env=environment() | dict(env or {}))
        self.workers.append(process)
        return process

    def log(self, number: int) -> str:
        return (self.folder / f"worker-{number}" / "log").read_text()

    def records_on_disk(self) -> int:
        """How many bytes of records the master has written."""
        journal = self.run_dir / "requests.arrows"
        return journal.stat().st_size if journal.exists() else 0

    def has_records(self) -> bool:
        return self.records_on_disk() > 0

    def finish(self, timeout_s: float = 60) -> Finished:
        """Wait for the master's end."""
        out, err = self.master.communicate(timeout=timeout_s)
        return Finished(self.master.returncode, out, err, self.run_dir)


@contextmanager
def swarm(
    folder: Path, host: str, workers: int, *arguments: str, expect: int | None = None, locustfile: Path = SHAREGPT
) -> Iterator[Swarm]:
    """Start a master, and so many workers."""
    folder.mkdir(exist_ok=True)
    port = free_port()
    command = [sys.executable, "-m", "locust", "-f", str(locustfile), "--master", "--headless", "--host", host]
    command += ["--master-bind-port", str(port), "--expect-workers", str(expect or workers), "--loglevel", "WARNING"]
    command += ["--run-dir", str(folder / "run"), *arguments]
    pipe = subprocess.PIPE
    master = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=folder, env=environment())
    running = Swarm(folder, port, locustfile, master)
    try:
        for _ in range(workers):
            running.add_worker()
        yield running
    finally:
        for process in [master, *running.workers]:
            if process.poll() is None:
                process.kill()
            process.wait()


def wait_until(true: Callable[[], bool], timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def prompts_of(done: Finished) -> Sequence[tuple[int, str]]:
    """(place in the plan, hash of the prompt) of every measured request that ended, in the plan's order."""
    records = done.records.measured()
    ended = records.where(~records.equals("status", "cancelled"))
    return sorted(zip(ended.table["prompt_index"].to_pylist(), ended.strings("prompt_sha256"), strict=True))
