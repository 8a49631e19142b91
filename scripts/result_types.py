"""The JSON objects that llama-load's writers make from several dataclasses, as types.

`scripts.make_schemas` makes schemas of them. The keys that come from tables of metrics (`FIGURES`,
`LATENCIES`) are added there, to those that say so.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from llama_load.analysis.figures.answer_ends import AnswerEnds
from llama_load.analysis.figures.conversation_figures import ConversationFigures
from llama_load.analysis.figures.failures import FailureClass
from llama_load.analysis.figures.gpu_figures import GpuFigures
from llama_load.analysis.figures.summary import FailureCount
from llama_load.analysis.figures.time_sums import TimeParts
from llama_load.analysis.statistics.changes import Change
from llama_load.analysis.topics.affinity.affinity_figures import AffinityFigures
from llama_load.analysis.topics.answer_forms.form_figures import FormFigures
from llama_load.analysis.topics.engine.engine_figures import EngineFigures
from llama_load.analysis.topics.hang_ups.hang_up_figures import HangUpFigures
from llama_load.analysis.topics.reprocessing.reprocessing_figures import (
    ReprocessingFigures,
)
from llama_load.analysis.topics.same_answers.same_answers import DifferingAnswer
from llama_load.analysis.topics.switching.switch_figures import SwitchFigures
from llama_load.lab.sweep.effects import Effect
from llama_load.run_folder.manifest import UntilEnd
from llama_load.run_folder.observed.hang_up_check import HangUpCheck
from llama_load.run_folder.observed.server_description import ServerDescription


class Bound(TypedDict):
    """By how much a failed check makes latencies too large, at most (ms), and rates too low."""

    ms: float
    ratio: float


class Check(TypedDict):
    """A check of the verdict, with what follows from it."""

    name: str
    value: float | None
    limit: float | None
    ok: bool
    text: str
    stage: str | None
    detects: float | None
    spoils: list[str]
    bound: Bound | None
    mark: str
    statement: str | None
    is_main: bool
    remedy: str | None


class Statement(TypedDict):
    """One of the six statements. `ok` is null where there is no evidence."""

    name: str
    text: str
    ok: bool | None
    failed: list[str]
    missing: list[str]


class Verdict(TypedDict):
    """Whether the figures of the run can be used."""

    word: str
    words: list[str]
    headline: str
    checks: list[Check]
    statements: list[Statement]


class Threshold(TypedDict):
    """A threshold of --fail-if and what became of it."""

    text: str
    requirement: str
    line: str
    value: float | str | None
    failed: bool
    why: str | None


class Sample(TypedDict):
    """Mean and percentiles of a sample. Median and std where the sample is a latency, in ms."""

    mean: float | None
    median: NotRequired[float | None]
    std: NotRequired[float | None]


class Figures(TypedDict):
    """Figures of a set of requests that vLLM's result file has no key for."""

    cancelled: int
    aborted: int
    wasted_tokens: int
    success_ratio: float | None
    good_requests: int | None
    peak_output_tok_per_s: float | None
    peak_in_flight: int
    known_input_tokens: int
    known_output_tokens: int
    tokens_per_event: Sample
    failures: list[FailureCount]
    output_chars_per_s: float | None
    total_inputs: int | None
    total_images: int | None
    tokens_per_image: float | None
    total_cached_tokens: int | None
    server_prompt_tok_per_s: float | None
    server_predict_tok_per_s: float | None
    retried_requests: int
    retries: int
    reused_connections: int
    reopened_connections: int
    token_sources: dict[str, int]
    prompt_token_sources: dict[str, int]
    clock_sources: dict[str, int]


class Flat(TypedDict):
    """The figures under the keys of `vllm bench serve`'s result file.

    Every figure and latency is added.
    """

    dropped: int | None
    spec_decode_acceptance_rate: NotRequired[float | None]
    spec_decode_acceptance_length: NotRequired[float | None]
    spec_decode_num_drafts: NotRequired[int | None]
    spec_decode_draft_tokens: NotRequired[int | None]
    spec_decode_accepted_tokens: NotRequired[int | None]
    spec_decode_per_position_acceptance_rates: NotRequired[list[float] | None]


class Part(Flat, Figures):
    """The figures of one workload, model, adapter, host or turn.

    `uncertain`: keys whose number does not mean what it seems to, and why.
    """

    uncertain: dict[str, str]


class Tpot(TypedDict):
    """TPOT by vLLM's formula; its statistics are added."""


class Stage(Part):
    """The figures of a stage."""

    users: int | None
    rate_rps: float | None
    crossing: int
    is_whole: bool
    conversations: ConversationFigures | None
    tok_per_s_per_user: float | None
    vllm_tpot: Tpot


class SameAnswers(TypedDict):
    """Answers under load against those to the same prompts alone."""

    compared: int
    differing: int
    unstable: int
    examples: list[DifferingAnswer]
    ratio: float | None


class ProbeSample(TypedDict):
    """A set of probes. Ratios are against those that were alone."""

    sent: int
    failed: int
    cut: int
    answered: int
    ttft_ratio: float | None
    e2el_ratio: float | None
    ttft_ms: Sample
    e2el_ms: Sample


class ProbeSlice(ProbeSample):
    """The probes of a part of the run's time, in seconds."""

    begin_s: float
    end_s: float


class Probes(TypedDict):
    """What probes (--probe-rate) measured."""

    rate_rps: float
    alone: ProbeSample
    alone_range_ms: list[float] | None
    total: ProbeSample
    by_class: dict[str, ProbeSample]
    by_stage: dict[str, ProbeSample]
    over_time: list[ProbeSlice]
    failures: dict[str, int]
    prompt_tokens: int | None
    output_tokens: int | None
    request_ratio: float | None
    token_ratio: float | None
    alone_cached_ratio: float | None
    cached_ratio: float | None
    cut_shift: float | None
    missing: int
    skipped: int
    lost_neighbours: int


class Steady(TypedDict):
    """The steady part of the run, or why there is none; statistics of latencies are added."""

    reason: str
    text: str
    begin_s: float | None
    end_s: float | None
    requests: int
    warmup_share: float
    shift_s: float | None
    request_throughput: NotRequired[float | None]
    output_throughput: NotRequired[float | None]


class Drift(TypedDict):
    """What a figure changes per hour."""

    name: str
    unit: str
    level: float
    per_hour: float
    low: float
    high: float
    share: float
    is_certain: bool


class Soak(TypedDict):
    """A run of an hour or more."""

    hours: float
    drifts: list[Drift]
    failures: Change | None


class OtherRequest(TypedDict):
    """Requests of the locustfile that are not llama-load's."""

    method: str
    name: str
    requests: int
    failures: int
    mean_ms: float | None
    max_ms: float | None
    error: str | None


class SidePair(TypedDict):
    """A time as the client and as the server measured it, ms."""

    name: str
    client: float | None
    server: float | None
    coarse: bool
    difference: float | None


class RunTimeParts(TypedDict):
    """Where the time of the requests went."""

    total: TimeParts | None
    by_workload: dict[str, TimeParts | None]
    by_stage: dict[str, TimeParts | None]


class StageTelemetry(TypedDict):
    """Telemetry of a stage; its figures are added."""

    seconds: float
    by_gpu: list[GpuFigures]
    notes: list[str]


class Telemetry(StageTelemetry):
    """Telemetry of the measurement; its figures are added."""

    by_stage: dict[str, StageTelemetry]


class Ours(Figures):
    """What vLLM's result file has no key for.

    TPOT between the first and the last event is added.
    """

    version: str
    end: str
    recovered: bool
    verdict: Verdict
    thresholds: list[Threshold]
    uncertain: dict[str, str]
    failures: list[FailureClass]  # type: ignore[misc]
    sentences: list[str]
    answers: AnswerEnds
    answer_forms: list[FormFigures]
    hang_ups: HangUpFigures | None
    hang_up_checks: list[HangUpCheck]
    same_answers: SameAnswers | None
    probes: Probes | None
    steady: Steady | None
    ended_below: str | None
    until: UntilEnd | None
    soak: Soak | None
    other_requests: list[OtherRequest]
    task_exceptions: Any
    telemetry: Telemetry
    prompts: dict[str, Any]
    servers: list[ServerDescription]
    by_workload: dict[str, Part]
    by_model: dict[str, Part]
    by_adapter: dict[str, Part]
    switching: SwitchFigures | None
    affinity: AffinityFigures | None
    reprocessing: ReprocessingFigures | None
    engine: EngineFigures | None
    by_stage: dict[str, Stage]
    same_prompts: bool
    repeated_prompts: int
    conversations: ConversationFigures | None
    by_turn: dict[str, Part]
    by_agent_turn: dict[str, Part]
    client_server: list[SidePair]
    time_parts: RunTimeParts
    request_imbalance: float | None
    token_imbalance: float | None
    by_host: dict[str, Part]


class Summary(Flat):
    """summary.json: vLLM's keys, and under `llama_load` all else. Not measured: null."""

    schema_version: int
    date: str
    endpoint_type: str
    backend: str
    label: str | None
    model_id: str | None
    tokenizer_id: str | None
    num_prompts: int | None
    request_rate: float | str | None
    burstiness: float
    max_concurrency: int | None
    server_queue_times: NotRequired[list[float | None]]
    server_ttfts: NotRequired[list[float | None]]
    llama_load: Ours


class SharedCheck(TypedDict):
    """A check that failed."""

    name: str
    ok: bool
    text: str


class SharedVerdict(TypedDict):
    """The verdict of a shared run."""

    words: list[str]
    headline: str
    checks: list[SharedCheck]


class SharedOurs(TypedDict):
    """What vLLM's result file has no key for."""

    version: str | None
    verdict: SharedVerdict
    total_cached_tokens: float | None
    reused_connections: float | None
    uncertain: dict[str, str]


class SharedGpu(TypedDict):
    """A GPU of the server."""

    name: str | None
    vram_gib: float | None


class SharedHardware(TypedDict):
    """Hardware of the server, and of the client's machine."""

    gpus: list[SharedGpu]
    client_cpu: str | None
    client_cores: float | None
    client_memory_gib: float | None
    client_system: str
    client_machine: str
    client_python: str | None
    server_on_the_clients_machine: bool
    servers: int
    workers: int


class SharedServer(TypedDict):
    """What a server is made of; counts are added."""

    kind: str
    model: str | None
    build: str | None
    quantization: str | None
    n_gpu_layers: str | None
    kv_types: str | None
    flash_attention: str
    devices: list[str]
    rpc_workers: int
    draft_model: bool


class SharedLoad(TypedDict):
    """The load of a shared run."""

    concurrency: float | None
    requests_per_s: float | None
    arrivals: str
    stages: int | None
    workload: str
    endpoint: str
    data: str
    fixed_lengths: bool
    prompt_cache_intended: bool
    ended: str
    mean_prompt_tokens: float | None
    mean_output_tokens: float | None


class SharedLevel(TypedDict):
    """A stage of a shared run; a figure that is not certain is null."""

    users: float | None
    requests_per_s: float | None
    output_throughput: float | None
    median_ttft_ms: float | None


class Shared(TypedDict):
    """What `llama-load share` adds. `digests`: SHA-256 of files of the run, by name."""

    format: int
    written_by: str
    hardware: SharedHardware
    hardware_id: str
    server: list[SharedServer]
    load: SharedLoad
    levels: list[SharedLevel]
    digests: dict[str, str]


class Share(TypedDict):
    """share.json: a run without anything private. Figures and latencies are added."""

    schema_version: int
    max_concurrency: float | None
    request_rate: float | str | None
    burstiness: float | None
    num_prompts: float | None
    endpoint_type: str
    date: str
    dropped: float | None
    llama_load: SharedOurs
    share: Shared


class SearchProbe(TypedDict):
    """A run of a search, in the folder `run`.

    `share`: of the judged requests that met all objectives.
    """

    level: float
    unit: str
    step: str
    run: str | None
    requests: int
    judged: int
    share: float | None
    interval: list[float] | None
    by_objective: dict[str, float | None]
    fault: str | None
    figures: dict[str, float | None]


class Search(TypedDict):
    """search.json: the capacity with its 95 % interval, the sentence, every probe."""

    schema_version: int
    version: str
    sentence: str
    unit: str
    capacity: float | None
    low: float | None
    high: float | None
    confidence: float
    share: float
    objectives: list[str]
    binding: str | None
    ended_early: str | None
    knee: float | None
    requests: int
    margins: list[str]
    not_ranked: list[str]
    notes: list[str]
    probes: list[SearchProbe]


class TableCell(TypedDict):
    """A cell of a table."""

    text: str
    best: bool
    value: float | None


class SweepTable(TypedDict):
    """A table of a sweep."""

    title: str
    columns: list[str]
    rows: list[list[TableCell]]
    notes: list[str]


class SweepCell(TypedDict):
    """A combination of settings and its run. `run`: its folder; null: it was not measured."""

    title: str
    server: str
    settings: dict[str, Any]
    workload: str
    load: str
    repeat: int
    status: str
    reason: str
    run: str | None
    took_s: float | None
    extra: dict[str, Any]
    notes: list[str]


class Sweep(TypedDict):
    """sweep.json: every cell with its run folder and outcome, the tables, the effects."""

    schema_version: int
    version: str
    title: str
    cells: list[SweepCell]
    tables: list[SweepTable]
    effects: list[Effect]
    memory: dict[str, str]
