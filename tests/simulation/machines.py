"""Virtual machines: their clocks, their disks, whether they run; and the server that they load."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import gevent
import pyarrow as pa
from gevent.event import Event

from llama_load.loadgen.wire.receiver import PYTHON
from llama_load.run_folder import SpoolManifest
from llama_load.run_folder.journal import Journal, read_journal
from llama_load.run_folder.observed.record import CANCELLED, OK, RequestRecord
from tests.simulation.virtual_loop import NS, Callback, VirtualLoop

TEMP = tempfile.gettempdir()
# For a process that is dead: its timers never ring.
FOR_EVER_S = 1e9


class Machine:
    """One process on a machine of its own."""

    def __init__(self, name: str, loop: VirtualLoop, chance: Random) -> None:
        self.name = name
        self.loop = loop
        self.chance = chance
        self.is_dead = False
        self.is_stopped = False
        self.held: list[Any] = []
        self.starved_s = 0.0  # how late its timers are at most
        self.disk_s = 0.0  # how long a call of its disk takes
        self.is_disk_full = False
        self.is_temp_full = False
        self.is_doomed = False  # its process is killed in the middle of the next write
        self.kill: Callable[[], None] = lambda: None
        self.offset_ns = chance.randrange(-(10**15), 10**15)
        self.drift = chance.uniform(-2e-4, 2e-4)
        self.wall_ns_ahead = chance.choice((0, 0, 3600 * NS, -86_400 * NS))
        self.spools: list[VirtualSpool] = []

    def late_s(self) -> float:
        """How much later a timer ends."""
        return self.chance.uniform(0, self.starved_s) if self.starved_s else 0.0

    def disk_delay_s(self) -> float:
        """How long the disk takes."""
        return self.chance.uniform(0, self.disk_s) if self.disk_s else 0.0

    def monotonic_ns(self, now_ns: int) -> int:
        """Its monotonic clock."""
        return 10**16 + now_ns + self.offset_ns + round(now_ns * self.drift)

    def wall_ns(self, now_ns: int) -> int:
        """Its wall clock."""
        return 1_800_000_000 * NS + now_ns + self.wall_ns_ahead

    def write(self, path: Path) -> None:
        """Its disk takes something, or raises OSError."""
        is_full = self.is_temp_full if str(path).startswith(TEMP) else self.is_disk_full
        if is_full:
            raise OSError(errno.ENOSPC, "No space left on device")

    def append(
        self, path: Path, journal: VirtualJournal, batch: pa.RecordBatch
    ) -> None:
        """Its disk takes a batch, or raises OSError. A machine that is doomed ends in the middle of
        it."""
        self.write(path)
        if self.is_doomed:
            journal.torn = batch
            self.kill()
            gevent.sleep(FOR_EVER_S)
        journal.batches.append(batch)


class VirtualJournal:
    """See `Journal`: the batches in a file. `torn`: one whose write was cut at some byte."""

    def __init__(self, machine: Machine) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.torn: pa.RecordBatch | None = None
        self._chance = machine.chance

    def ids(self) -> list[str]:
        """The ids of the requests in it, in their order, as it is read after the process's end.
        What was cut is read by the code that reads real journals, from a real file."""
        if self.torn is None:
            return [found for batch in self.batches for found in ids_of(batch)]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "journal"
            journal = Journal(path)
            for batch in self.batches:
                journal.append(batch)
            whole_bytes = path.stat().st_size
            journal.append(self.torn)
            journal.close()
            os.truncate(path, self._chance.randint(whole_bytes, path.stat().st_size))
            return list(ids_of(read_journal(path).table))

    @property
    def is_sound(self) -> bool:
        """Whether a cut write has cost no other batch, and gives no part of itself."""
        if self.torn is None:
            return True
        found = self.ids()
        before = [each for batch in self.batches for each in ids_of(batch)]
        return found in (before, before + ids_of(self.torn))


def ids_of(batch: pa.RecordBatch | pa.Table) -> list[str]:
    """The ids of its requests."""
    ids: list[str] = batch.column("request_id").to_pylist()
    return ids


class VirtualSpool:
    """See `llama_load.run_folder.spool.Spool`: batches on a machine's disk."""

    def __init__(self, path: Path, about: SpoolManifest, machine: Machine) -> None:
        self.path = path
        self.about = about
        self.records = 0
        self.journal = VirtualJournal(machine)
        self.is_complete = False
        self._machine = machine
        machine.spools.append(self)
        if str(path).startswith(TEMP):
            path.rmdir()  # the outbox has made it on the real disk

    def append(self, batch: Any) -> None:
        """See `Spool.append`."""
        if self._machine.is_dead:
            return
        self._machine.append(self.path, self.journal, batch)
        self.records += batch.num_rows

    def complete(self) -> None:
        """See `Spool.complete`."""
        if self._machine.is_dead:
            return
        self._machine.write(self.path)
        self.is_complete = True

    def discard(self) -> None:
        """See `Spool.discard`."""
        if not self._machine.is_dead:
            self.journal.batches.clear()


class Request:
    """One request at the server, as its log has it."""

    def __init__(
        self, key: tuple[bool, int], request_id: str, worker: str, begun_ns: int
    ) -> None:
        self.key = key
        self.request_id = request_id
        self.worker = worker
        self.begun_ns = begun_ns
        self.ended_ns: int | None = None


class Server:
    """Answers after a while, fails or hangs."""

    def __init__(self, loop: VirtualLoop, chance: Random, service_s: float) -> None:
        self.loop = loop
        self.chance = chance
        self.service_s = service_s
        self.mode = "well"  # or "slow", "fails", "hangs"
        self.log: list[Request] = []

    @property
    def in_flight(self) -> int:
        """How many requests it is working on."""
        return sum(request.ended_ns is None for request in self.log)


class Exchange:
    """One request under way: `wait` returns its status."""

    def __init__(self, server: Server, machine: Machine, request: Request) -> None:
        self._server = server
        self._machine = machine
        self.request = request
        self._ended = Event()
        self.status: str | None = None
        if server.mode != "hangs":
            factor = 10 if server.mode == "slow" else 1
            seconds = server.chance.expovariate(1 / (server.service_s * factor))
            with server.loop.on(None):
                server.loop.call_after(seconds, Callback(self._answer, (), None))

    def _answer(self) -> None:
        """The server has answered; the client reads it when it runs."""
        status = "http_500" if self._server.mode == "fails" else OK
        if self.status is None:
            self.request.ended_ns = self._server.loop.now_ns
            with self._server.loop.on(self._machine):
                self._server.loop.run_callback(self._end, status)

    def wait(self) -> None:
        """Until the answer, or the end of patience."""
        if not self._ended.wait(30):
            self._end("timeout_total")

    def cancel(self) -> None:
        """Give it up."""
        self._end(CANCELLED)

    def _end(self, status: str) -> None:
        if self.status is None:
            self.status = status
            self.request.ended_ns = self.request.ended_ns or self._server.loop.now_ns
            self._ended.set()


class Connections:
    """See `Transport`: the exchanges of a process."""

    receiver = PYTHON

    def __init__(self) -> None:
        self.active: dict[Exchange, None] = {}
        self.pool = self

    def close_parked(self) -> None:
        """Nothing is parked."""


class Writer:
    """See `RunWriter`: the run folder on the master's disk. `rows`: (worker, key, status, request
    id) of each stored record."""

    def __init__(self, machine: Machine, manifest: Any) -> None:
        self.path = Path("run")
        self.manifest = manifest
        self.rows: list[tuple[str, tuple[bool, int], str, str]] = []
        self.journal = VirtualJournal(machine)
        self.appended = 0
        self._machine = machine

    @property
    def batches(self) -> list[pa.RecordBatch]:
        """All that was stored."""
        return self.journal.batches

    def append_batch(self, batch: pa.RecordBatch, *, anywhere: bool = False) -> None:
        """See `RunWriter.append_batch`."""
        try:
            self._machine.append(self.path, self.journal, batch)
        except OSError:
            if not anywhere:
                raise
            self._machine.append(Path(TEMP), self.journal, batch)
        self._note(batch)

    def keep(self, batch: pa.RecordBatch) -> None:
        """See `RunWriter.keep`."""
        self.journal.batches.append(batch)
        self._note(batch)

    def _note(self, batch: pa.RecordBatch) -> None:
        self.appended += batch.num_rows
        columns = (
            batch.column(name).to_pylist()
            for name in ("worker", "warmup", "prompt_index", "status", "request_id")
        )
        for worker, warmup, index, status, request_id in zip(*columns, strict=True):
            self.rows.append((worker, (warmup, index), status, request_id))

    def write_manifest(self) -> None:
        """See `RunWriter.write_manifest`."""
        self._machine.write(self.path)


def record_of(
    request: Request,
    status: str,
    worker: str,
    *,
    now_ns: int,
    scheduled_ns: int | None,
    stage: int,
) -> RequestRecord:
    """What a worker knows of a request that has ended, on its clock."""
    return RequestRecord(
        request_id=request.request_id,
        worker=worker,
        user="User",
        workload="chat",
        name="chat",
        stage=stage,
        host="http://server",
        endpoint="chat",
        warmup=request.key[0],
        prompt_index=request.key[1],
        status=status,
        started_mono_ns=request.begun_ns,
        ended_mono_ns=now_ns,
        scheduled_mono_ns=scheduled_ns,
        started_wall_ns=0,
    )


def spooled_ids(machines: Sequence[Machine]) -> set[str]:
    """The ids of requests in spools that `report --add` would add."""
    found: set[str] = set()
    for machine in machines:
        for spool in machine.spools:
            found.update(spool.journal.ids())
    return found
