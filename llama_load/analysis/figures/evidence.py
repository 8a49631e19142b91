"""The input of a verdict: records and figures of a run or of a stage, and how they were
measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from llama_load.analysis.figures.failure_hints import FailureContext
from llama_load.analysis.figures.probe_figures import ProbeFigures
from llama_load.analysis.figures.prompt_cache import CacheEvidence, PromptTable
from llama_load.analysis.figures.summary import Summary
from llama_load.analysis.figures.token_counts import CountGap, TpotBounds
from llama_load.run_folder.observed.hang_up_check import HangUpCheck
from llama_load.run_folder.observed.losses import DamagedJournal, LostWorker
from llama_load.run_folder.observed.other_requests import OtherTraffic
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.observed.server_counters import ServerCounters
from llama_load.run_folder.observed.worker_health import WorkerHealth
from llama_load.run_folder.vocabulary.definitions import SECTION_KEYS


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The evidence of the whole run, or of one stage (`stage` is its name).

    `records` are the measured requests, including those that were cut or ended after a stage;
    `figures` are the judged figures. Unknown fields keep their defaults.
    """

    records: Records
    figures: Summary
    stage: str | None = None
    # with the unmeasured requests that kept up the load; None: none were in flight beside these
    beside: Records | None = None

    # the load
    # configured concurrency; None: an open loop without a limit
    users: int | None = None
    # how long Locust took to start the users, within the measurement
    ramp_s: float | None = None
    users_asked: Sequence[
        int
    ] = ()  # each concurrency that was set while requests were measured
    # mean time between scheduled arrivals; None: a closed loop
    gap_ms: float | None = None
    is_steady: bool = True  # the configured load was constant (no ramp, no trace)
    # when the load ended by time or by hand; None: every request ended normally
    cut_ns: int | None = None
    # number of planned requests; None: as many as fit the time
    planned: int | None = None
    # arrivals that were scheduled before the end but not sent; None: nothing was cut
    unsent: int | None = None
    # arrivals that were not sent because the limit of requests in flight was reached
    dropped: int = 0
    # users hung up after a number of tokens, however long these took (--abort-after)
    aborts_by_tokens: bool = False
    interrupted: bool = False  # the run was stopped before its end
    stopped_by_hand: bool = False  # by Ctrl-C or in the web UI
    percentiles: Sequence[float] = (99.0,)
    shown: Sequence[str] = SECTION_KEYS  # latencies whose percentiles are printed

    # conversations
    recorded_history: bool = False  # --history recorded
    shortened_conversations: int = 0  # whose last turns do not fit a slot
    # configured to be alive at a time (--conversations)
    conversations: int | None = None

    # the client
    health: Sequence[WorkerHealth] = ()
    lost: Sequence[LostWorker] = ()
    # --shared-machine: other programs on the server's machine belong to the measurement
    shared_machine: bool = False
    # the same, because the environment says that this is a runner of CI
    is_ci: bool = False
    # from the end of a request to its record on the master's disk, p90; None without a swarm
    master_lag_s: float | None = None

    # the run folder
    damaged: Sequence[DamagedJournal] = ()
    # how the records are not as they were written; None: not known
    changed: Sequence[str] | None = ()

    # prompts and caches
    # of the whole run, warm-ups included; None: made of `records`
    prompts: PromptTable | None = None
    cache: CacheEvidence = field(default_factory=CacheEvidence)
    # output tokens by the server's counts and by events, for each server
    count_gaps: Sequence[CountGap] = ()
    tpot_bounds: TpotBounds | None = None  # None: no answer has a TPOT
    stage_number: int | None = None
    probes: ProbeFigures | None = None  # with --probe-rate

    # the server
    hosts: Sequence[str] = ()  # the replicas
    slots: int | None = None  # of all replicas together
    # a finish by length without max_tokens means a full context (llama-server)
    length_means_full: bool = False
    fixed_lengths: bool = False  # every answer should have exactly the requested length
    server_changes: Sequence[str] = ()
    counters: ServerCounters | None = None  # of all replicas, over the measured time
    # of the replica that was started last, when the run was prepared
    uptime_s: float | None = None
    # ms of the mean E2EL that nothing explains, and that mean
    unexplained: tuple[float, float] | None = None
    # of these, the mean time with a free slot before the prompt began
    unattributed_ms: float = 0.0
    server_endings: Sequence[
        str
    ] = ()  # the last words of servers that ended during the run
    after_servers: int = 0  # requests that came when no server was left
    hang_ups: Sequence[HangUpCheck] = ()  # of the servers, where users hung up
    unused_rpc_workers: Sequence[str] = ()  # that a server was to compute on
    draft_models: Sequence[str] = ()  # servers that were started with one
    wakes: int = 0  # times that servers woke from a sleep, by their logs
    # of each sampled GPU that the servers use: the part of the time in which other programs computed
    # on it, 0 to 1; None where the driver does not tell
    gpu_others: Sequence[float | None] = ()
    # time in which servers copied prompts from slots to their caches, by their logs
    prompt_saves_ms: float = 0.0
    failure_context: FailureContext = field(default_factory=FailureContext)

    # the locustfile
    # what its users did besides LLM requests
    others: OtherTraffic = field(default_factory=OtherTraffic)

    @property
    def sent(self) -> Records:
        """All requests that were in flight: what the servers' counters and the concurrency are
        about."""
        return self.records if self.beside is None else self.beside
