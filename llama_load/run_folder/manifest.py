"""run.json: settings, server, data set and outcome of a run; and the small manifest of a spool."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, TypedDict

import msgspec

from llama_load.ground.errors import RunError, UsageError
from llama_load.ground.units import quantity
from llama_load.outside.foreign_files import read_foreign
from llama_load.outside.foreign_json import decode_foreign
from llama_load.outside.foreign_text import redacted
from llama_load.run_folder.observed.common_beginnings import CommonBeginnings
from llama_load.run_folder.observed.hang_up_check import HangUpCheck
from llama_load.run_folder.observed.losses import DamagedJournal, LostWorker
from llama_load.run_folder.observed.sent_before import SentBefore
from llama_load.run_folder.observed.server_counters import ServerCounters
from llama_load.run_folder.observed.server_description import ServerDescription
from llama_load.run_folder.observed.worker_health import WorkerHealth
from llama_load.run_folder.records_digest import RecordsDigest
from llama_load.run_folder.result_schemas import RUN, VERSIONS
from llama_load.run_folder.vocabulary.flag_roles import FlagRoles
from llama_load.run_folder.whole_file import write_whole

MANIFEST = "run.json"
JOURNAL = "requests.arrows"
PACKED = "requests.packed.arrows"
TABLE = "requests.parquet"
RUNNING = "running"
Percentile = Annotated[float, msgspec.Meta(gt=0, lt=100)]
MOST_PERCENTILES = 100  # each is a figure of every latency, stage and part


@dataclass(slots=True)
class PreflightRow:
    """One line of the preflight. `level` is "ok", "note" or "warning"."""

    name: str
    value: str
    level: str = "ok"


@dataclass(slots=True)
class StageRecord:
    """What a stage was and when it ran.

    `users` requests in flight, or `rate_rps` arrivals per second; `start` is where a ramp begins.
    Instants are on the master's clock; None: it never began or ended. `is_timed`: its time ended
    it. `dropped` arrivals at the limit in flight, `lost` workers, `unsent` arrivals scheduled
    before its end. `counters` are the servers'; None if not read, as between stages that follow
    each other without a pause.
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
    """Locust's target number of users from this instant on (master's clock): a closed loop's limit
    of requests in flight."""

    mono_ns: int
    users: int


@dataclass(frozen=True, slots=True)
class Aborted:
    """The --abort-if threshold that ended a run, as given, and the measured value."""

    text: str
    value: float


@dataclass(frozen=True, slots=True)
class UntilEnd:
    """What was known of the figure of --until at the end: its value (ms, or requests/s) after
    `count` requests, how far its 95 % interval reaches as a share of it, whether that ended the
    run, and if not, why not."""

    text: str
    count: int
    value: float | None
    within: float | None
    ended_early: bool
    obstacle: str = ""

    @property
    def sentence(self) -> str:
        """`p99_ttft is 512 ms ± 4.8 % after 4437 requests`, or that it is not known, and why;
        without a full stop."""
        figure, _, asked = self.text.partition(":")
        unit = "requests/s" if figure == "throughput" else "ms"
        value = "" if self.value is None else f"{self.value:.4g} {unit}"
        reach = "" if self.within is None else f" ± {100 * self.within:.2g} %"
        after = f"after {quantity(self.count, 'request')}"
        if self.ended_early:
            return f"{figure} is {value}{reach} (95 %) {after}"
        known = f": {value}{reach} {after}" if value and reach else f" {after}"
        return (
            f"{figure} is not known to {asked.strip().replace('%', ' %')} within the "
            f"limit{known} ({self.obstacle})"
        )


Whole = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class TargetFacts(TypedDict, total=False):
    """The types of what reports use of an entry of `targets` (`Target.described`)."""

    url: str
    backend: str
    build: str | None
    model: str | None
    quantization: str | None
    slots: Whole | None
    ctx_per_slot: Whole | None
    template_tokens: Whole | None
    head_tokens: Whole | None
    model_bytes: Whole | None
    n_params: Whole | None


@dataclass(slots=True)
class Manifest:
    """Everything needed to interpret the records: settings, server, data set, and how the run
    ended."""

    version: str
    date: str
    workload: str
    command: list[str]
    options: dict[str, Any]
    endpoint: str
    backend: str
    model: str | None
    # None: an older version wrote it
    flag_roles: FlagRoles | None = None
    label: str | None = None
    lang: str = "en"  # of the headings in report.md and report.html
    tokenizer: str | None = None
    # in a plain closed loop the largest target number of users during the measurement
    users: int = 1
    # in a plain closed loop: the target at its start, and each change
    users_asked: list[UsersAsked] = field(default_factory=list)
    # users / spawn rate, for a closed loop that Locust ramps up for more than 1 s
    ramp_s: float | None = None
    max_in_flight: int | None = None  # of an open loop
    request_rate: float | None = None
    conversation_rate: float | None = None  # conversations that arrive per minute
    conversations: int | None = None  # alive at a time, of --conversations
    burstiness: float = 1.0
    # "poisson", "gamma", "constant" or "trace"; None: a closed loop
    arrival: str | None = None
    trace: dict[str, Any] | None = None
    ramp: dict[str, Any] | None = None
    stages: list[StageRecord] = field(
        default_factory=list
    )  # empty: the run has no stages
    same_prompts: bool = False  # every stage sends the same prompts
    # answers under load are compared with those to the same prompts alone
    same_answer: bool = False
    # other programs on the server's machine belong to the measurement (--shared-machine)
    shared_machine: bool = False
    is_ci: bool = False  # the same, because the environment says CI=true
    probe_rate_rps: float | None = None  # --probe-rate
    probes_skipped: int = 0  # probes whose time passed while the client stood still
    probes_unwritten: int = 0  # records of probes that the disk did not take
    # requests of the warm-up were in flight beside the measured ones (--hand-over)
    hands_over: bool = False
    dropped: int = 0  # arrivals that were not sent because the limit was reached
    due: int = 0  # arrivals scheduled before the run time was over
    # when a time limit or a person ended the load; None: every request was completed
    cut_mono_ns: int | None = None
    cut: int = 0  # unsent requests of stages that a time limit ended
    num_prompts: int | None = None
    run_time_s: float | None = None
    seed: int = 0
    gpus: Whole | None = None  # of the whole set-up, as declared
    price_per_hour: float | None = None  # of the whole set-up, in the user's currency
    percentiles: Annotated[
        list[Percentile], msgspec.Meta(max_length=MOST_PERCENTILES)
    ] = field(default_factory=lambda: [99.0])
    percentile_metrics: list[str] = field(
        default_factory=lambda: ["ttft", "tpot", "itl"]
    )
    goodput: list[str] = field(default_factory=list)
    fail_if: list[str] = field(default_factory=list)
    aborted_by: Aborted | None = None  # the --abort-if that ended the run
    until: UntilEnd | None = None  # of --until
    ended_below: str | None = None  # why --end-below ended the run
    # Locust's: where requests besides those of LLMs failed, or tasks raised exceptions
    exit_code_on_error: int = 1
    cache_meant: bool = False  # caching is intended: --cache-prompt on
    # Prompts are new in this run, by a text of so many tokens before them or by their generated
    # content. None: they were sent as they are, or each begins with another text
    # (--bust-prefix-cache).
    prefix_tokens: int | None = None
    cache_off: bool = False  # every request turned the prompt cache off
    fixed_lengths: bool = False  # every answer has exactly its max_tokens
    # by workload: see `CacheEvidence`
    shared_tokens: dict[str, int | None] = field(default_factory=dict)
    # of different prompts; None: not looked for, or each begins with another text
    common_beginnings: CommonBeginnings | None = None
    prompts_sent_before: SentBefore | None = None  # in earlier runs; None: not known
    dataset: dict[str, Any] | None = None
    prompts: dict[str, Any] = field(default_factory=dict)
    targets: list[dict[str, Any]] = field(default_factory=list)
    preflight: list[PreflightRow] = field(default_factory=list)
    host: dict[str, Any] = field(default_factory=dict)
    workers: list[WorkerHealth] = field(default_factory=list)
    lost: list[LostWorker] = field(default_factory=list)
    # from the end of a request to its record on the master's disk, p90 of all writes
    master_lag_s: float | None = None
    # the servers' counters during measurements, without warm-ups
    counters: ServerCounters | None = None
    # what the servers are made of, one per target
    servers: list[ServerDescription] = field(default_factory=list)
    hang_ups: list[HangUpCheck] = field(
        default_factory=list
    )  # with --abort-rate: one per target
    # differences between the servers before and after the run
    server_changes: list[str] = field(default_factory=list)
    # journals with records that are not in the table
    damaged: list[DamagedJournal] = field(default_factory=list)
    # of requests.parquet; None: there is none, or an older version wrote it
    records: RecordsDigest | None = None
    # SHA-256 of telemetry.parquet and probes.parquet, by name; None: an older version wrote them
    digests: dict[str, str] | None = None
    end: str = RUNNING  # then "complete", "time", "stopped", "interrupted", "aborted", "server"
    # of this file, see `llama_load.run_folder.result_schemas`; None: an older version wrote it
    schema_version: int | None = None


@dataclass(slots=True)
class SpoolManifest:
    """The worker whose records a spool holds, and the offset of its clock: master's clock =
    worker's + offset.

    `wall_offset_ns`: the master's wall clock less its monotonic one; None: the records have the
    master's wall clock already. `is_complete`: it holds every record of this worker that the master
    has not acknowledged."""

    worker: str
    clock_offset_ns: int | None = None
    wall_offset_ns: int | None = None
    is_complete: bool = False


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest, whole or not at all."""
    versioned = replace(manifest, schema_version=VERSIONS[RUN])
    text = msgspec.json.format(msgspec.json.encode(versioned), indent=1).decode()
    write_whole(folder / MANIFEST, redacted(text).encode() + b"\n")


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a run folder. Raises UsageError if the folder has none, RunError if it is
    damaged."""
    file = folder / MANIFEST
    if not file.is_file():
        raise UsageError(f"{folder} is no run folder: it has no {MANIFEST}")
    try:
        manifest = decode_foreign(read_foreign(file, inside=folder), Manifest)
        check_targets(manifest.targets)
        return manifest
    except OSError as error:
        raise RunError(f"{file} cannot be read: {error.strerror}") from None
    except (
        ValueError,
        RecursionError,
    ) as error:  # msgspec's exceptions are ValueErrors
        raise RunError(f"{file} cannot be read: {error}") from None


def check_targets(targets: object) -> None:
    """Raises ValueError: they are not what reports can use as the `targets` of a manifest."""
    msgspec.convert(targets, list[TargetFacts])


def last_with_label(
    folder: Path, label: str, before: tuple[Path, str] | None = None
) -> tuple[Path, Manifest] | None:
    """The newest run with this label among the folders in `folder`; None if there is none.
    `before`: the newest that is not of a later date than this run, and not this run itself."""
    runs = []
    for file in filter(Path.is_file, folder.glob(f"*/{MANIFEST}")):
        try:
            data = read_foreign(file, inside=file.parent)
            manifest = decode_foreign(data, Manifest)
        except (OSError, ValueError, RecursionError):
            continue  # another program's, or damaged
        if manifest.label == label and (
            before is None or (file.parent != before[0] and manifest.date <= before[1])
        ):
            runs.append((file.parent, manifest))
    return max(runs, key=lambda run: run[1].date, default=None)
