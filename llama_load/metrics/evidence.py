"""The input of a verdict: records and figures of a run or of a stage, and how they were measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from llama_load.metrics.definitions import SECTION_KEYS
from llama_load.metrics.failure_hints import FailureContext
from llama_load.metrics.other_requests import OtherTraffic
from llama_load.metrics.prompt_cache import CacheEvidence, PromptTable
from llama_load.metrics.records import Records
from llama_load.metrics.server_counters import ServerCounters
from llama_load.metrics.summary import Summary
from llama_load.metrics.token_counts import CountGap
from llama_load.units import NS_PER_S

# Beginning of the sentence in `Evidence.server_changes` that reports no change, only a missing answer.
NO_ANSWER = "did not answer at the end of the run"


@dataclass(slots=True)
class WorkerHealth:
    """A worker's measurements of itself during the run.

    `core_busy`: CPU time of its process, 0 to 1 of one core. `stolen_ratio`: share of CPU time that the hypervisor gave to others.
    `clock_offset_ms`: what was added to its instants to convert them to the master's clock, None in one process;
    `clock_uncertainty_ms`: the largest possible error of that.
    `longest_pause_ms`: the longest time for which the event loop did not run (less the 20 ms between two samples), from
    `longest_pause_mono_ns` on, by the master's clock. `late_wakeups`: lags over 5 ms as (start, ms), the 1000 longest at most.
    `suspended_ms`: how long the machine was suspended.
    `machine_busy`: used share of all cores' time, 0 to 1; `own_share` of this process; `server_share` of the servers under test,
    None where they do not run on this machine.
    `core_wait_ms`: how long the event loop's thread was ready to run but waited for a core, by the kernel's account; the longest
    wait between two samples, and the share of the time; None where unknown. `priority`: that thread's priority.
    `others`: what its users did besides LLM requests, warm-ups included.
    """

    worker: str
    loop_lag_p99_ms: float | None = None
    loop_lag_max_ms: float | None = None
    core_busy: float | None = None
    stolen_ratio: float | None = None
    clock_offset_ms: float | None = None
    clock_uncertainty_ms: float | None = None
    longest_pause_ms: float | None = None
    longest_pause_mono_ns: int | None = None
    late_wakeups: list[tuple[int, float]] = field(default_factory=list)
    suspended_ms: float | None = None
    machine_busy: float | None = None
    own_share: float | None = None
    server_share: float | None = None
    core_wait_ms: float | None = None
    core_wait_longest_ms: float | None = None
    core_wait_ratio: float | None = None
    priority: str | None = None
    others: OtherTraffic = field(default_factory=OtherTraffic)


# How often the lag of an event loop is sampled.
LAG_EVERY_NS = NS_PER_S // 50


def within(health: WorkerHealth, begun_ns: int, ended_ns: int) -> WorkerHealth:
    """A worker's event loop lag between two instants: p99 and longest; 0 where it is below 5 ms."""
    lags = sorted((ms for since_ns, ms in health.late_wakeups if begun_ns <= since_ns < ended_ns), reverse=True)
    beyond = max(1, (ended_ns - begun_ns) // LAG_EVERY_NS // 100)  # samples above p99; in a short stage the longest alone
    p99 = lags[beyond] if beyond < len(lags) else 0.0
    longest = lags[0] if lags else 0.0
    return WorkerHealth(health.worker, p99, longest, longest_pause_ms=longest)


@dataclass(slots=True)
class LostWorker:
    """A worker that was lost. `possibly_sent`: measured requests without a record that it may have sent;
    `possibly_sent_warmup`: those of warm-ups; `handed_on`: how many unsent requests went to other workers."""

    worker: str
    possibly_sent: list[int] = field(default_factory=list)
    handed_on: int = 0
    possibly_sent_warmup: list[int] = field(default_factory=list)


@dataclass(slots=True)
class DamagedJournal:
    """A damaged file of records, which is kept: damaged places, unreadable bytes, and missing records (None: unknown). Without a
    damaged place: the disk did not take these records."""

    file: str
    places: int
    bytes: int
    records: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The evidence of the whole run, or of one stage (`stage` is its name).

    `records` are the measured requests, including those that were cut or ended after a stage; `figures` are the judged figures.
    Unknown fields keep their defaults.
    """

    records: Records
    figures: Summary
    stage: str | None = None
    beside: Records | None = None  # with the unmeasured requests that kept up the load; None: none were in flight beside these

    # the load
    users: int | None = None  # configured concurrency; None: an open loop without a limit
    ramp_s: float | None = None  # how long Locust took to start the users, within the measurement
    users_asked: Sequence[int] = ()  # each concurrency that was set while requests were measured
    gap_ms: float | None = None  # mean time between scheduled arrivals; None: a closed loop
    is_steady: bool = True  # the configured load was constant (no ramp, no trace)
    cut_ns: int | None = None  # when the load ended by time or by hand; None: every request ended normally
    planned: int | None = None  # number of planned requests; None: as many as fit the time
    unsent: int | None = None  # arrivals that were scheduled before the end but not sent; None: nothing was cut
    dropped: int = 0  # arrivals that were not sent because the limit of requests in flight was reached
    interrupted: bool = False  # the run was stopped before its end
    percentiles: Sequence[float] = (99.0,)
    shown: Sequence[str] = SECTION_KEYS  # latencies whose percentiles are printed

    # the client
    health: Sequence[WorkerHealth] = ()
    lost: Sequence[LostWorker] = ()
    master_lag_s: float | None = None  # from the end of a request to its record on the master's disk, p90; None without a swarm

    # the run folder
    damaged: Sequence[DamagedJournal] = ()

    # prompts and caches
    prompts: PromptTable | None = None  # of the whole run, warm-ups included; None: made of `records`
    cache: CacheEvidence = field(default_factory=CacheEvidence)
    count_gaps: Sequence[CountGap] = ()  # output tokens by the server's counts and by events, for each server
    stage_number: int | None = None

    # the server
    hosts: Sequence[str] = ()  # the replicas
    slots: int | None = None  # of all replicas together
    length_means_full: bool = False  # a finish by length without max_tokens means a full context (llama-server)
    fixed_lengths: bool = False  # every answer should have exactly the requested length
    server_changes: Sequence[str] = ()
    counters: ServerCounters | None = None  # of all replicas, over the measured time
    uptime_s: float | None = None  # of the replica that was started last, when the run was prepared
    unexplained: tuple[float, float] | None = None  # ms of the mean E2EL that nothing explains, and that mean
    server_endings: Sequence[str] = ()  # the last words of servers that ended during the run
    unused_rpc_workers: Sequence[str] = ()  # that a server was to compute on
    draft_models: Sequence[str] = ()  # servers that were started with one
    failure_context: FailureContext = field(default_factory=FailureContext)

    # the locustfile
    others: OtherTraffic = field(default_factory=OtherTraffic)  # what its users did besides LLM requests

    @property
    def sent(self) -> Records:
        """All requests that were in flight: what the servers' counters and the concurrency are about."""
        return self.records if self.beside is None else self.beside
