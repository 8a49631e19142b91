"""What a server is made of: model, quantization, layers, threads, memory. The columns of a
comparison."""

from __future__ import annotations

from dataclasses import dataclass, field

# Beginning of the sentence in `Evidence.server_changes` that reports no change, only a missing
# answer.
NO_ANSWER = "did not answer at the end of the run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffers:
    """What a server has allocated on one device, MiB."""

    device: str
    model_mib: float
    kv_mib: float
    compute_mib: float

    @property
    def total_mib(self) -> float:
        """All of it."""
        return self.model_mib + self.kv_mib + self.compute_mib


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcWorker:
    """An RPC worker."""

    address: str
    # the part of the model that it holds; 0: the server was to use it and does not; None: unknown
    model_mib: float | None = None
    # how long a TCP connection to it takes to open, which is one round trip
    rtt_ms: float | None = None
    # by the server to it during the run, as the kernel counts the connection's payload
    sent_bytes: int | None = None
    received_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftModel:
    """The draft model of speculative decoding, from the server's log."""

    model_bytes: int | None = None
    n_params: int | None = None
    quantization: str | None = None
    layers: int | None = None
    buffers: list[Buffers] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class ServerDescription:
    """One server. None: nothing tells it. `n_params`, `quantization` and sizes are the model's.

    Sources, the first that has it: the server's log, its API (/v1/models, /props), its command
    line.
    """

    url: str
    backend: str | None = None
    build: str | None = None
    model: str | None = None
    model_bytes: int | None = None
    n_params: int | None = None
    quantization: str | None = None
    # that hold a part of the model: CPU, CUDA, RPC
    devices: list[str] = field(default_factory=list)
    n_gpu_layers: str | None = None  # as asked for
    layers_offloaded: int | None = None  # to devices other than the CPU
    layers: int | None = None  # of all layers
    threads: int | None = None
    threads_batch: int | None = None
    batch: int | None = None
    micro_batch: int | None = None
    slots: int | None = None
    context: int | None = None  # tokens of all slots
    context_per_slot: int | None = None
    kv_unified: bool | None = None  # all slots share one KV pool of `context` tokens
    # the most of an image that was asked for; -1: by the model
    image_tokens_asked: int | None = None
    # what the server made of it, where its micro-batch is smaller
    image_tokens_cap: int | None = None
    # an answer goes on when its slot is full: the oldest tokens are dropped (--context-shift)
    context_shift: bool = False
    # times since its start that a full context lost its oldest tokens (--context-shift)
    context_shifts: int = 0
    # times that a router unloaded a model for another since its start
    evictions: int = 0
    # times during the run that it woke from a sleep, and loaded its model again (in the
    # description before a run: since its start)
    wakes: int = 0
    # time during the run in which it copied prompts from slots to its prompt cache in memory
    # (--cache-ram), while it did nothing else, ms; its log has it from -lv 4 on
    prompt_saves_ms: float = 0.0
    kv_types: str | None = None
    flash_attention: str | None = None
    buffers: list[Buffers] = field(default_factory=list)
    draft: DraftModel | None = None
    memory_lines: list[str] = field(
        default_factory=list
    )  # llama.cpp's memory breakdown table
    # the table was printed before loading; `buffers` are what was allocated
    memory_is_forecast: bool = False
    fit_lines: list[str] = field(default_factory=list)
    rpc: list[RpcWorker] = field(default_factory=list)
    command: str | None = None  # without secrets
    process_threads: int | None = None
    rss_mib: float | None = None  # resident memory of its processes
    start_s: float | None = None  # from the start of its process until it was ready
    is_ours: bool = False  # llama-load serve started it
    note: str | None = None  # why less is known than could be
    ended: str | None = None  # its last words, if it ended during the run

    @property
    def rpc_unused(self) -> list[str]:
        """RPC workers that it was to use, and that hold no part of the model."""
        return [worker.address for worker in self.rpc if worker.model_mib == 0]
