"""run.json: everything that must be known to read a run's records, and the small one of a spool."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from llama_load.errors import RunError, UsageError
from llama_load.foreign_text import redacted
from llama_load.metrics.evidence import DamagedJournal, LostWorker, WorkerHealth
from llama_load.metrics.prompt_cache import SentBefore
from llama_load.metrics.server_counters import ServerCounters
from llama_load.runs.whole_file import write_whole

MANIFEST = "run.json"
JOURNAL = "requests.arrows"
TABLE = "requests.parquet"
RUNNING = "running"


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


@dataclass(frozen=True, slots=True)
class Aborted:
    """The threshold that ended a run, as it was given, and the value that it was compared with."""

    text: str
    value: float


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
    aborted_by: Aborted | None = None  # the --abort-if that ended the run
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
    damaged: list[DamagedJournal] = field(default_factory=list)  # of which not every record is in the table
    end: str = RUNNING  # then "complete", "time", "stopped", "interrupted", "aborted"


@dataclass(slots=True)
class SpoolManifest:
    """Whose records a spool holds, and what must be added to their instants to bring them onto the master's clock."""

    worker: str
    clock_offset_ns: int | None = None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Put the manifest on disk as it is now, whole or not at all."""
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=1).decode()
    write_whole(folder / MANIFEST, redacted(text).encode() + b"\n")


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a run folder. Raises UsageError when it is none, RunError when it is damaged."""
    file = folder / MANIFEST
    if not file.is_file():
        raise UsageError(f"{folder} is no run folder: it has no {MANIFEST}")
    try:
        return msgspec.json.decode(file.read_bytes(), type=Manifest)
    except OSError as error:
        raise RunError(f"{file} cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RunError(f"{file} cannot be read: {error}") from None


def last_with_label(folder: Path, label: str) -> Manifest | None:
    """The manifest of the newest run with this label among the folders in `folder`; None if there is none."""
    found = []
    for file in filter(Path.is_file, folder.glob(f"*/{MANIFEST}")):
        try:
            manifest = msgspec.json.decode(file.read_bytes(), type=Manifest)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue  # not ours, or damaged: nothing to compare with
        if manifest.label == label:
            found.append(manifest)
    return max(found, key=lambda manifest: manifest.date, default=None)
