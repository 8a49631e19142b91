"""The run folder: written while the run goes on, read back afterwards, recovered after a crash.

    run.json            the manifest, rewritten as a whole whenever it changes
    requests.arrows     the journal: an Arrow stream of record batches, appended to; gone once the run is finished
    requests.parquet    the journal's rows, written at the end

Everything that reports a run reads it from here, whether it has just ended or was killed last week.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

from llama_load.errors import RunError, UsageError
from llama_load.foreign_text import redacted
from llama_load.metrics.evidence import LostWorker, WorkerHealth
from llama_load.metrics.prompt_cache import SentBefore
from llama_load.metrics.records import Records
from llama_load.metrics.server_counters import ServerCounters
from llama_load.metrics.thresholds import ThresholdResult
from llama_load.record import CANCELLED, INSTANTS, RequestRecord, aligned, schema, to_batch

if TYPE_CHECKING:
    import pyarrow as pa

MANIFEST = "run.json"
JOURNAL = "requests.arrows"
TABLE = "requests.parquet"
# Rows that are packed at once: 10 million tokens of long answers.
ROW_GROUP = 10_000


@dataclass(slots=True)
class PreflightRow:
    """One line of what was asked of the server before the run. `level` is "ok", "note" or "warning"."""

    name: str
    value: str
    level: str = "ok"


@dataclass(slots=True)
class StageRecord:
    """What a stage was and when it ran: `users` requests in flight or `rate_rps` arrivals a second, from when to when
    (the master's clock; None: it never began, or never ended), whether it ended by time, how many arrivals were dropped
    at the limit, how many workers went away, and how many arrivals were scheduled before its end and not sent. `start`
    is where a ramp begins. `counters` is what the servers counted in it; None where stages follow each other without a
    pause, too.
    """

    name: str
    users: int | None = None
    rate_rps: float | None = None
    begun_mono_ns: int | None = None
    ended_mono_ns: int | None = None
    is_timed: bool = False
    dropped: int = 0
    lost: int = 0
    unsent: int = 0
    start: float | None = None
    counters: ServerCounters | None = None


@dataclass(slots=True)
class UsersAsked:
    """From this instant on (the master's clock) so many users were asked for: a closed loop's limit of requests in flight."""

    mono_ns: int
    users: int


@dataclass(slots=True)
class Manifest:
    """Everything that must be known to read the records: what was asked, of whom, with what, and how it ended."""

    version: str
    date: str
    workload: str
    command: list[str]
    options: dict[str, Any]
    endpoint: str
    backend: str
    model: str | None
    label: str | None = None
    tokenizer: str | None = None
    users: int = 1  # in a plain closed loop the most that were asked for while it was measured
    users_asked: list[UsersAsked] = field(default_factory=list)  # in a plain closed loop: at its beginning, and each change
    ramp_s: float | None = None  # users / spawn rate of a closed loop that Locust ramps up in over a second: part of the run
    max_in_flight: int | None = None  # of an open loop
    request_rate: float | None = None
    burstiness: float = 1.0
    arrival: str | None = None  # "poisson", "gamma", "constant" or "trace"; None: a closed loop
    trace: dict[str, Any] | None = None
    ramp: dict[str, Any] | None = None
    stages: list[StageRecord] = field(default_factory=list)  # none: the run is all of one
    same_prompts: bool = False  # in every stage
    dropped: int = 0  # arrivals that were not sent because the limit was reached
    due: int = 0  # arrivals whose instant had come when the time was over
    cut_mono_ns: int | None = None  # when a time or a person ended the load; None: everything ended that had begun
    cut: int = 0  # requests of stages that a time ended before all had been sent
    num_prompts: int | None = None
    run_time_s: float | None = None
    seed: int = 0
    percentiles: list[float] = field(default_factory=lambda: [99.0])
    percentile_metrics: list[str] = field(default_factory=lambda: ["ttft", "tpot", "itl"])
    goodput: list[str] = field(default_factory=list)
    fail_if: list[str] = field(default_factory=list)
    aborted_by: ThresholdResult | None = None  # the --abort-if that ended the run, with what it saw
    exit_code_on_error: int = 1  # Locust's: where requests besides those of LLMs failed, or tasks raised exceptions
    cache_meant: bool = False  # cached prompts are part of what is measured: --cache-prompt on
    cache_off: bool = False  # every server was asked not to use its prompt cache
    fixed_lengths: bool = False  # every answer was to have exactly the length asked for
    shared_tokens: dict[str, int | None] = field(default_factory=dict)  # by workload: see `CacheEvidence`
    prompts_sent_before: SentBefore | None = None  # in earlier runs; None: not known
    dataset: dict[str, Any] | None = None
    prompts: dict[str, Any] = field(default_factory=dict)
    targets: list[dict[str, Any]] = field(default_factory=list)
    preflight: list[PreflightRow] = field(default_factory=list)
    host: dict[str, Any] = field(default_factory=dict)
    workers: list[WorkerHealth] = field(default_factory=list)
    lost: list[LostWorker] = field(default_factory=list)
    counters: ServerCounters | None = None  # what the servers counted while requests were measured, warm-ups left out
    server_changes: list[str] = field(default_factory=list)  # what the servers were at the end that they were not at the begin
    end: str = "running"  # then "complete", "time", "stopped", "interrupted", "aborted"


@dataclass(slots=True)
class SpoolManifest:
    """Whose records a spool holds, and what must be added to their instants to bring them onto the master's clock."""

    worker: str
    clock_offset_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """A run read back: its folder, manifest and records. `recovered` if it was never finished properly."""

    path: Path
    manifest: Manifest
    records: Records
    recovered: bool


class Journal:
    """An Arrow stream of record batches on disk, appended to; what was appended survives `kill -9`."""

    def __init__(self, path: Path) -> None:
        """Raises OSError when the file cannot be made."""
        self._file: IO[bytes] = path.open("wb", buffering=0)

    def append(self, batch: pa.RecordBatch) -> None:
        """Add a batch; it is with the kernel when this returns. Raises OSError when the disk refuses; the journal is then
        as it was before."""
        end = self._file.tell()
        data = batch.serialize()
        try:
            if not end:
                _write_all(self._file, schema().serialize())
            _write_all(self._file, data)
        except OSError:
            self._file.seek(end)  # a batch that did not fit on the disk must not stand in the way of the next
            self._file.truncate()
            raise

    def close(self) -> None:
        """No more batches."""
        self._file.close()


class RunWriter:
    """Writes one run folder. `append` as records come, `finish` once."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        """Create the folder. Raises UsageError when it cannot be written or holds a run already."""
        self.path = path
        self.manifest = manifest
        self.appended = 0
        self._journal: Journal | None = None
        try:
            if (path / MANIFEST).exists():
                raise UsageError(f"{path} already holds a run; choose another --run-dir or move it away")
            if path.is_dir() and any(path.iterdir()):
                raise UsageError(f"{path} already holds other files; choose a new or empty folder as --run-dir")
            path.mkdir(parents=True, exist_ok=True)
            self.write_manifest()
        except OSError as error:
            raise UsageError(f"cannot write the run folder {path}: {error.strerror}; choose another --run-dir") from None

    def write_manifest(self) -> None:
        """Put the manifest on disk as it is now, whole or not at all."""
        _write_manifest(self.path, self.manifest)

    def append(self, records: Sequence[RequestRecord]) -> None:
        """Add records to the journal. Raises OSError when the disk refuses."""
        self.append_batch(to_batch(records))

    def append_batch(self, batch: pa.RecordBatch) -> None:
        """The same for packed columns."""
        if self._journal is None:
            self._journal = Journal(self.path / JOURNAL)
        self._journal.append(batch)
        self.appended += batch.num_rows

    def finish(self) -> None:
        """Turn the journal into requests.parquet and write the manifest for the last time.

        Raises RunError, and keeps the journal, if not all appended records can be read back.
        """
        if self._journal is not None:
            self._journal.close()
        _finish_folder(self.path, self.manifest, self.appended)


def load_run(path: Path) -> Run:
    """Read a run folder, finished or not. Raises UsageError when it is none, RunError when it is damaged."""
    manifest_file = path / MANIFEST
    if not manifest_file.is_file():
        raise UsageError(f"{path} is no run folder: it has no {MANIFEST}")
    try:
        manifest = msgspec.json.decode(manifest_file.read_bytes(), type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RunError(f"{manifest_file} cannot be read: {error}") from None
    if (path / TABLE).is_file():
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return Run(path, manifest, Records(aligned(pq.read_table(path / TABLE))), recovered=False)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise RunError(f"{path / TABLE} cannot be read: {error}") from None
    return Run(path, manifest, Records(_read_journal(path / JOURNAL)), recovered=True)


def recover(run: Run) -> None:
    """Finish a run whose process was killed: write the table that it could not write any more."""
    if run.manifest.end == "running":
        run.manifest.end = "interrupted"
    _finish_folder(run.path, run.manifest, len(run.records))


def add_spool(run: Run, spool: Path) -> int:
    """Bring what a worker could not deliver into the run's table, and say how many requests that were.

    A request that is on record already is left out, from whichever worker. Instants go onto the master's clock. Raises
    UsageError when the folder is no spool, or does not say how far its clock was from the master's.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        about = msgspec.json.decode((spool / MANIFEST).read_bytes(), type=SpoolManifest)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        raise UsageError(f"{spool} is no spool of a worker: it has no {MANIFEST} that names one") from None
    if about.clock_offset_ns is None:
        raise UsageError(f"{spool} was written before the worker knew the master's clock: its records cannot be put in order")
    found = Records(_read_journal(spool / JOURNAL))
    on_record = set(run.records.strings("request_id"))
    ended = run.records.where(~run.records.equals("status", CANCELLED))
    keys = set(zip(ended.strings("warmup"), ended.strings("prompt_index"), strict=True))
    new = [
        request_id not in on_record and (status == CANCELLED or (warmup, index) not in keys)
        for request_id, status, warmup, index in zip(
            *(found.strings(name) for name in ("request_id", "status", "warmup", "prompt_index")), strict=True
        )
    ]
    table = found.table.filter(pa.array(new, pa.bool_()))
    for name in INSTANTS:
        place = table.schema.get_field_index(name)
        table = table.set_column(place, table.schema.field(place), pc.add(table[name], about.clock_offset_ns))
    returned = set(zip(*(Records(table).strings(name) for name in ("warmup", "prompt_index")), strict=True))
    for gone in run.manifest.lost:
        gone.possibly_sent = [index for index in gone.possibly_sent if (False, index) not in returned]
        gone.possibly_sent_warmup = [index for index in gone.possibly_sent_warmup if (True, index) not in returned]
    if run.manifest.end == "running":
        run.manifest.end = "interrupted"
    _write_table(run.path, pa.concat_tables([run.records.table, table]))
    _write_manifest(run.path, run.manifest)
    return int(table.num_rows)


def last_with_label(folder: Path, label: str) -> Manifest | None:
    """The manifest of the newest run with this label among the folders in `folder`; None if there is none."""
    found = []
    for file in folder.glob(f"*/{MANIFEST}"):
        try:
            manifest = msgspec.json.decode(file.read_bytes(), type=Manifest)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            continue  # not ours, or damaged: nothing to compare with
        if manifest.label == label:
            found.append(manifest)
    return max(found, key=lambda manifest: manifest.date, default=None)


def free_run_dir(wanted: Path) -> Path:
    """`wanted`, or wanted-2, -3, … if it already holds a run (a second start in the web UI)."""
    candidate, number = wanted, 1
    while (candidate / MANIFEST).exists():
        number += 1
        candidate = wanted.with_name(f"{wanted.name}-{number}")
    return candidate


def _write_manifest(folder: Path, manifest: Manifest) -> None:
    text = redacted(msgspec.json.format(msgspec.json.encode(manifest), indent=1).decode()).encode()
    unfinished = folder / (MANIFEST + ".part")
    unfinished.write_bytes(text + b"\n")
    unfinished.replace(folder / MANIFEST)


def _write_all(file: IO[bytes], data: Any) -> None:
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]


def _finish_folder(folder: Path, manifest: Manifest, expected: int) -> None:
    table = _read_journal(folder / JOURNAL)
    if table.num_rows < expected:
        raise RunError(f"{folder / JOURNAL} holds {table.num_rows} of {expected} records; it is kept as it is")
    _write_table(folder, table)
    _write_manifest(folder, manifest)


def _write_table(folder: Path, table: pa.Table) -> None:
    """The table, whole or not at all; then the journal is of no more use."""
    import pyarrow.parquet as pq

    unfinished = folder / (TABLE + ".part")
    pq.write_table(table, unfinished, compression="zstd", row_group_size=ROW_GROUP)
    unfinished.replace(folder / TABLE)
    (folder / JOURNAL).unlink(missing_ok=True)


def _read_journal(path: Path) -> pa.Table:
    """All whole batches of a journal; a batch that was being written when the process died is left out."""
    import pyarrow as pa

    batches: list[pa.RecordBatch] = []
    if path.is_file() and path.stat().st_size:
        try:
            with pa.ipc.open_stream(path.open("rb")) as reader:
                for batch in reader:
                    batches.append(batch)
        except (pa.ArrowInvalid, OSError):
            pass  # the torn end of the journal; what came before it is whole
    return aligned(pa.Table.from_batches(batches)) if batches else schema().empty_table()
