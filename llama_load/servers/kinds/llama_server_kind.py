"""llama.cpp's llama-server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from llama_load.ground.own_modules import module_command
from llama_load.outside.plain_http import NoAnswerError, Session
from llama_load.servers.kinds.llama_cpp_log import LOG_FACTS
from llama_load.servers.kinds.server_controls import NO_ANSWER, post_to, slot_paths
from llama_load.servers.kinds.server_kind import (
    NO_ADAPTER,
    Form,
    Metrics,
    ServerKind,
    Signs,
)
from llama_load.servers.kinds.server_start import (
    DEFAULT_START,
    LLAMA_CPP_VARIABLES,
    SERVER_KEY,
    Command,
    ServerSpec,
    ServerStart,
    has_flag,
    refuse_other_than_gguf,
    runnable,
)

TEXT_APIS = ("completions", "completion", "infill")
# Of the embedded server.
SLOTS = 4  # also of llama-server, where only the context of one slot is given
CTX_PER_SLOT = 4096
THREADS = 1
# The level at which llama.cpp logs its buffers and the memory breakdown. Until the end of 2025 they
# came at the default level, and level 4 was not yet a level of its own.
LOG_LEVEL = "4"
_LEVELS = (
    "-lv",
    "--verbosity",
    "--log-verbosity",
    "-v",
    "--verbose",
    "--log-verbose",
    "--log-disable",
)


class LlamaServerStart(ServerStart):
    """A llama-server program, on request with RPC workers."""

    name = "llama-server"
    help = "start llama.cpp's llama-server, on request with RPC workers"
    typed = "llama-server …"
    program = "llama-server"
    takes_rpc = True
    fits_memory = True
    key_variable = "LLAMA_API_KEY"
    variables = LLAMA_CPP_VARIABLES
    tls_key_flag = "--ssl-key-file"
    tls_key_variable = "LLAMA_ARG_SSL_KEY_FILE"
    prefix_flag = "--api-prefix"
    prefix_variable = "LLAMA_ARG_API_PREFIX"
    model_flags = ("-m", "--model")

    def command(self, spec: ServerSpec, port: int, workers: Command = ()) -> Command:
        """See `ServerStart.command`."""
        command = [self.program_of(spec)]
        if spec.model:
            refuse_other_than_gguf(Path(spec.model))
            command += ["-m", spec.model]
        command += ["--host", spec.host, "--port", str(port)]
        if "--metrics" not in spec.args:
            command += ["--metrics"]
        if not has_flag(spec.args, *_LEVELS):
            command += ["-lv", LOG_LEVEL]
        if workers:
            command += ["--rpc", ",".join(workers)]
            if not has_flag(spec.args, "-ngl", "--gpu-layers", "--n-gpu-layers"):
                # only layers for devices other than the CPU, as the workers are, leave this process
                command += ["-ngl", "99"]
        return (*command, *spec.args)

    def worker_command(self, spec: ServerSpec, address: str) -> Command:
        """See `ServerStart.worker_command`."""
        host, _, port = address.rpartition(":")
        worker = spec.rpc_worker or (_rpc_server_beside(self.program_of(spec)),)
        return (
            runnable(worker[0], "--rpc-worker takes the worker's command"),
            *worker[1:],
            "-H",
            host,
            "-p",
            port,
        )

    def is_started_by(self, program: str, arguments: Sequence[str]) -> int | None:
        """See `ServerStart.is_started_by`."""
        return 0 if program.startswith("llama-server") or program == "server" else None

    def size_flags(
        self, slots: int | None, ctx_per_slot: int | None, threads: int | None
    ) -> list[str] | None:
        """See `ServerStart.size_flags`."""
        if ctx_per_slot is not None:
            slots = slots or SLOTS
        flags = []
        if slots is not None:
            flags += ["-np", str(slots)]
            if ctx_per_slot is not None:
                flags += ["-c", str(slots * ctx_per_slot)]
        if threads is not None:
            flags += ["-t", str(threads)]
        return flags


class EmbeddedStart(ServerStart):
    """llama.cpp's HTTP server in a process of this Python
    (`llama_load.servers.serving.embedded_server`)."""

    name = DEFAULT_START
    help = (
        "start the embedded llama-server of the extra `demo`; without a model it makes a "
        "small random one"
    )
    typed = "llama-load serve …"
    makes_model = True
    key_variable = SERVER_KEY
    variables = LLAMA_CPP_VARIABLES

    def command(self, spec: ServerSpec, port: int, workers: Command = ()) -> Command:
        """See `ServerStart.command`."""
        refuse_other_than_gguf(Path(spec.model))
        return (
            *module_command("llama_load.servers.serving.embedded_server"),
            "-m",
            spec.model,
            "--host",
            spec.host,
            "--port",
            str(port),
            *spec.args,
        )

    def is_started_by(self, program: str, arguments: Sequence[str]) -> int | None:
        """See `ServerStart.is_started_by`."""
        return 1 if program == "llama-load" and arguments[:1] == ["serve"] else None

    def size_flags(
        self, slots: int | None, ctx_per_slot: int | None, threads: int | None
    ) -> list[str] | None:
        """See `ServerStart.size_flags`."""
        slots = slots or SLOTS
        return [
            "-np",
            str(slots),
            "-c",
            str(slots * (ctx_per_slot or CTX_PER_SLOT)),
            "-t",
            str(threads or THREADS),
        ]


def _rpc_server_beside(server: str) -> str:
    """ggml-rpc-server, under its earlier name rpc-server too, in the server's folder; else its
    name, for PATH."""
    for name in ("ggml-rpc-server", "rpc-server"):
        path = Path(server).resolve().with_name(name)
        if path.is_file():
            return str(path)
    return "ggml-rpc-server"


class LlamaServerKind(ServerKind):
    """See `ServerKind`. It announces that it keeps a connection after a stream, but closes it."""

    name = "llama-server"
    title = "llama.cpp"
    ends_by_reason = True
    keeps_connections = False
    holds_headers = True
    has_cache_switch = True
    divides_context = True
    fills_context = True
    slots_path = "/slots"
    sleep_flag = "--sleep-idle-seconds"
    adapters_path = "/lora-adapters"
    cache_reset = "/slots/{slot}?action=erase"
    cache_reset_note = "llama-server erases slots only with --slot-save-path"
    draft_flags = frozenset(
        (
            "-md",
            "--model-draft",
            "--spec-draft-model",
            "-hfd",
            "-hfrd",
            "--hf-repo-draft",
            "--spec-draft-hf",
        )
    )
    tuned: ClassVar = {
        "memory": r"-c|--ctx-size|-np|--parallel|-ct[kv]|--cache-type-[kv]|-ngl|--n-gpu-layers"
        r"|-kvu|--kv-unified",
        "draft": r"-md|-ngld|-cd|--model-draft|--draft.*|--spec.*",
    }
    remedies: ClassVar = {
        "ttft": "a larger -ub, or more layers on the GPU (-ngl)",
        "tpot": "more layers on the GPU (-ngl), a smaller quantization, or a draft model (-md)",
    }
    form = Form(
        "/tokenize",
        lambda model, text: {
            "model": model or "",
            "content": text,
            "add_special": True,
        },
        template_path="/apply-template",
    )
    cache_off_flags = ("--no-cache-prompt",)
    starts = (LlamaServerStart(), EmbeddedStart())
    flags: ClassVar = {
        "model": ("-m", "--model", "-hf", "--hf-repo"),
        "n_gpu_layers": ("-ngl", "--gpu-layers", "--n-gpu-layers"),
        "kv_type": ("-ctk", "--cache-type-k"),
        "v_type": ("-ctv", "--cache-type-v"),
        "rpc": ("--rpc",),
        "threads": ("-t", "--threads"),
        "threads_batch": ("-tb", "--threads-batch"),
        "batch": ("-b", "--batch-size"),
        "micro_batch": ("-ub", "--ubatch-size"),
        "slots": ("-np", "--parallel"),
        "context": ("-c", "--ctx-size"),
    }
    log_facts = LOG_FACTS
    # It counts processed prompt tokens, without cached ones, and looks up every prompt. Tokens that
    # --cache-ram brings back from the host's memory are cached ones.
    metrics = Metrics(
        prefix="llamacpp:",
        prompt_tokens="prompt_tokens",
        excludes_cached=True,
        hits="prompt_tokens_cached",
        output_tokens="tokens_predicted",
        drafts="spec_decode_num_drafts",
        draft_tokens="spec_decode_num_draft_tokens",
        accepted_tokens="spec_decode_num_accepted_tokens",
        accepted_per_position="spec_decode_num_accepted_tokens_per_pos",
        running="requests_processing",
        waiting="requests_deferred",
        running_words=("in a slot", "deferred"),
        kv_used=("kv_cache_usage_ratio",),
    )

    def is_shown_by(self, signs: Signs) -> bool:
        """See `ServerKind.is_shown_by`."""
        trained = any(model.trained_context for model in signs.listed)
        return "total_slots" in signs.props or (
            signs.is_owned_by("llamacpp") and (trained or signs.form is self.form)
        )

    def reset_cache(self, session: Session, url: str) -> str:
        """See `ServerKind.reset_cache`; each slot has its own."""
        try:
            paths = slot_paths(session, url, self.slots_path, self.cache_reset)
        except NoAnswerError:
            return NO_ANSWER
        except (ValueError, KeyError, TypeError):
            return self.cache_reset_note
        return post_to(session, url, paths, self.cache_reset_note)

    def schema_fields(self, api: str, schema: Any) -> dict[str, Any] | None:
        """See `ServerKind.schema_fields`."""
        return (
            {"json_schema": schema}
            if api in TEXT_APIS
            else super().schema_fields(api, schema)
        )

    def grammar_fields(
        self, api: str, grammar: str, build: str | None
    ) -> dict[str, Any] | None:
        """See `ServerKind.grammar_fields`."""
        return {"grammar": grammar} if api in ("chat", *TEXT_APIS) else None

    def adapter_fields(self, api: str, adapter: str) -> dict[str, Any] | None:
        """See `ServerKind.adapter_fields`. A request that names adapters gets no others. An empty
        list means the server's own scales, so no adapter is the first one with scale 0."""
        if api not in ("chat", *TEXT_APIS):
            return None
        if adapter == NO_ADAPTER:
            return {"lora": [{"id": 0, "scale": 0.0}]}
        return {"lora": [{"id": int(adapter), "scale": 1.0}]}


LLAMA_SERVER = LlamaServerKind()
