"""What a verdict rests on: the records and figures of a run or of a stage, and what is known about how they came about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from llama_load.metrics.definitions import SECTION_KEYS
from llama_load.metrics.other_requests import OtherTraffic
from llama_load.metrics.prompt_cache import CacheEvidence
from llama_load.metrics.records import Records
from llama_load.metrics.summary import Summary
from llama_load.units import NS_PER_S

# How a sentence of `Evidence.server_changes` begins that names no change.
NO_ANSWER = "did not answer at the end of the run"


@dataclass(slots=True)
class WorkerHealth:
    """What a worker noticed of itself during the measurement.

    `core_busy` is 0 to 1, of one core; `stolen_ratio` the share of all CPU time that the machine's hypervisor gave to others;
    `clock_offset_ms` what was added to its instants to bring them onto the master's clock, None in one process;
    `clock_uncertainty_ms` by how much that may be wrong, the worst of all that was added to its records.
    `longest_pause_ms` is the longest time for which the event loop did not run (20 ms between two samples subtracted), which
    began at `longest_pause_mono_ns` by the master's clock; `late_wakeups` are lags of over 5 ms, (since when, ms), at most the
    1000 longest; `suspended_ms` for how long the machine was asleep.
    `machine_busy` is the share of all cores' time that anybody used, `own_share` that of this process, and `server_share` that of
    the servers under test, None where they are not seen on this machine; all are 0 to 1, and of the whole measurement.
    `others` is what its users did besides LLM requests, warm-ups included.
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
    others: OtherTraffic = field(default_factory=OtherTraffic)


# How often the lag of an event loop is sampled.
LAG_EVERY_NS = NS_PER_S // 50


def within(health: WorkerHealth, begun_ns: int, ended_ns: int) -> WorkerHealth:
    """What a worker noticed of its event loop between two instants: p99 and longest lag, as far as they are over 5 ms (else 0)."""
    lags = sorted((ms for since_ns, ms in health.late_wakeups if begun_ns <= since_ns < ended_ns), reverse=True)
    beyond = max(1, (ended_ns - begun_ns) // LAG_EVERY_NS // 100)  # samples above p99; in a short stage the longest alone
    p99 = lags[beyond] if beyond < len(lags) else 0.0
    longest = lags[0] if lags else 0.0
    return WorkerHealth(health.worker, p99, longest, longest_pause_ms=longest)


@dataclass(slots=True)
class LostWorker:
    """A worker that went away: the measured requests that it may have sent and of which no record came, how many it had not
    begun, which went to others, and the requests of warm-ups that it may have sent."""

    worker: str
    possibly_sent: list[int] = field(default_factory=list)
    handed_on: int = 0
    possibly_sent_warmup: list[int] = field(default_factory=list)


@dataclass(slots=True)
class DamagedJournal:
    """A file of records of which not everything could be read: in how many places, how many bytes, and how many records are
    missing, None where that is not known. It is kept."""

    file: str
    places: int
    bytes: int
    records: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Of the whole run, or of one stage (`stage` is its name).

    `records` are the measured requests, those included that were cut or ended after a stage; `figures` are the ones to be judged.
    What is unknown has its default, and the checks say so.
    """

    records: Records
    figures: Summary
    stage: str | None = None

    # the load
    users: int | None = None  # requests in flight that were asked for; None: an open loop without a limit
    ramp_s: float | None = None  # how long Locust took to start them, as part of the measurement
    users_asked: Sequence[int] = ()  # in flight, each number that was asked for while requests were measured
    gap_ms: float | None = None  # mean time between scheduled arrivals; None: a closed loop
    is_steady: bool = True  # the load asked for did not change (no ramp, no trace)
    cut_ns: int | None = None  # when the load ended by time or by hand; None: everything ended that had begun
    planned: int | None = None  # how many requests there should be; None: as many as fit the time
    unsent: int | None = None  # arrivals whose scheduled time had come but that were not sent; None: nothing was cut
    dropped: int = 0  # arrivals that were not sent because the limit of requests in flight was reached
    interrupted: bool = False  # the run was broken off before its end
    percentiles: Sequence[float] = (99.0,)
    shown: Sequence[str] = SECTION_KEYS  # latencies whose percentiles are printed

    # the client
    health: Sequence[WorkerHealth] = ()
    lost: Sequence[LostWorker] = ()

    # the run folder
    damaged: Sequence[DamagedJournal] = ()

    # prompts and caches
    all_records: Records | None = None  # of the whole run, warm-ups included; None: `records`
    cache: CacheEvidence = field(default_factory=CacheEvidence)
    stage_number: int | None = None

    # the server
    hosts: Sequence[str] = ()  # the replicas
    slots: int | None = None  # of all replicas together
    length_means_full: bool = False  # a finish by length without max_tokens means a full context (llama-server)
    fixed_lengths: bool = False  # every answer was to have exactly the length asked for
    server_changes: Sequence[str] = ()

    # the locustfile
    others: OtherTraffic = field(default_factory=OtherTraffic)  # what its users did besides LLM requests
