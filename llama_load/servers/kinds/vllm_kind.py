"""vLLM."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

from llama_load.ground.errors import UsageError
from llama_load.outside.plain_http import Session
from llama_load.servers.kinds.server_controls import post_until_done
from llama_load.servers.kinds.server_kind import Form, Metrics, ServerKind, Signs
from llama_load.servers.kinds.server_start import Command, ServerSpec, ServerStart

# Since this version it takes `structured_outputs`; before, each kind of form had a field of its
# own.
STRUCTURED_OUTPUTS_SINCE = (0, 11)
REQUEST_METRICS_SINCE = (0, 25)


class VllmStart(ServerStart):
    """`vllm serve MODEL`."""

    name = "vllm"
    help = "start vllm serve MODEL"
    typed = "vllm serve MODEL …"
    program = "vllm"
    required_model = "a folder, or a name of Hugging Face"
    key_variable = "VLLM_API_KEY"
    tls_key_flag = "--ssl-keyfile"

    def command(self, spec: ServerSpec, port: int, workers: Command = ()) -> Command:
        """See `ServerStart.command`."""
        if not spec.model:
            raise UsageError(
                "vllm needs a model: a folder or a name of Hugging Face, such as Qwen/Qwen3-0.6B"
            )
        return (
            self.program_of(spec),
            "serve",
            spec.model,
            "--host",
            spec.host,
            "--port",
            str(port),
            *spec.args,
        )

    def is_started_by(self, program: str, arguments: Sequence[str]) -> int | None:
        """See `ServerStart.is_started_by`."""
        is_serving = arguments[:1] == ["serve"] and len(arguments) > 1
        return 2 if program.startswith("vllm") and is_serving else None

    def hidden_flags(self, command: Sequence[str]) -> Sequence[str]:
        """See `ServerStart.hidden_flags`."""
        if "serve" not in command[:3]:
            return ()
        following = command[command.index("serve") + 1 :]
        if not following or following[0].startswith("-"):
            return ()
        return ("--model", following[0])


class VllmKind(ServerKind):
    """See `ServerKind`. It sends usage with every event on request, which counts their tokens."""

    name = "vllm"
    title = "vLLM"
    ends_by_reason = True
    stream_options: ClassVar = {"include_usage": True, "continuous_usage_stats": True}
    context_flag = "--max-model-len"
    remedies: ClassVar = {
        "ttft": "a larger --max-num-seqs or --max-num-batched-tokens",
        "tpot": "a quantized model, more GPUs (-tp), or --speculative-config",
    }
    scores_by = "ids"
    cache_block = 16  # of GPUs; its page has that of others
    cache_block_flag = "--block-size"
    cache_off_flags = ("--no-enable-prefix-caching",)
    cache_reset = "/reset_prefix_cache"
    cache_reset_note = "vLLM needs VLLM_SERVER_DEV_MODE=1"
    profile_start = "/start_profile"
    profile_stop = "/stop_profile"
    profile_note = "vLLM needs --profiler-config, older ones VLLM_TORCH_PROFILER_DIR"
    tuned: ClassVar = {
        "memory": r"--max-model-len|--gpu-memory-utilization|--kv-cache-dtype|--block-size",
        "draft": r"--speculative.*",
    }
    form = Form(
        "/tokenize",
        lambda model, text: {"model": model or "", "prompt": text},
        counts_messages=True,
    )
    # External hits: prompt tokens from a KV connector (LMCache, another machine's memory) that the
    # engine's own cache did not have. Older versions named the prefix cache's counters after the
    # device; some have both names for one count.
    metrics = Metrics(
        prefix="vllm:",
        prompt_tokens="prompt_tokens",
        output_tokens="generation_tokens",
        queries="prefix_cache_queries",
        hits="prefix_cache_hits",
        external_hits="external_prefix_cache_hits",
        requests="request_success",
        preemptions="num_preemptions",
        drafts="spec_decode_num_drafts",
        draft_tokens="spec_decode_num_draft_tokens",
        accepted_tokens="spec_decode_num_accepted_tokens",
        accepted_per_position="spec_decode_num_accepted_tokens_per_pos",
        times={
            "ttft_ms": "time_to_first_token_seconds",
            "e2el_ms": "e2e_request_latency_seconds",
            "queue_ms": "request_queue_time_seconds",
            "prefill_ms": "request_prefill_time_seconds",
            "decode_ms": "request_decode_time_seconds",
        },
        renamed={
            "prefix_cache_queries": "gpu_prefix_cache_queries",
            "prefix_cache_hits": "gpu_prefix_cache_hits",
        },
        running="num_requests_running",
        waiting="num_requests_waiting",
        kv_used=("kv_cache_usage_perc", "gpu_cache_usage_perc"),
        cache_info="cache_config_info",
        also=("lmcache:",),
    )
    starts = (VllmStart(),)
    flags: ClassVar = {
        "model": ("--model",),
        "kv_type": ("--kv-cache-dtype",),
        "batch": ("--max-num-batched-tokens",),
        "slots": ("--max-num-seqs",),
    }
    log_facts = (
        (
            re.compile(r"vLLM API server version (\S+)"),
            lambda m: {"build": f"vLLM {m[1]}"},
        ),
    )

    def is_shown_by(self, signs: Signs) -> bool:
        """See `ServerKind.is_shown_by`."""
        by_owner = signs.is_owned_by("vllm") and (
            signs.lists_context or signs.form is self.form
        )
        return by_owner or ("version" in signs.version and signs.lists_context)

    def times_flag(self, build: str | None) -> str:
        """See `ServerKind.times_flag`."""
        is_old = (_version(build) or REQUEST_METRICS_SINCE) < REQUEST_METRICS_SINCE
        return "" if is_old else "--enable-per-request-metrics"

    def reset_cache(self, session: Session, url: str) -> str:
        """See `ServerKind.reset_cache`."""
        return post_until_done(session, url, self.cache_reset, self.cache_reset_note)

    def schema_fields(self, api: str, schema: Any) -> dict[str, Any] | None:
        """See `ServerKind.schema_fields`; text completions take it as chats do."""
        return super().schema_fields("chat" if api == "completions" else api, schema)

    def grammar_fields(
        self, api: str, grammar: str, build: str | None
    ) -> dict[str, Any] | None:
        """See `ServerKind.grammar_fields`."""
        if api not in {"chat", "completions"}:
            return None
        is_old = (
            _version(build) or STRUCTURED_OUTPUTS_SINCE
        ) < STRUCTURED_OUTPUTS_SINCE
        if is_old:
            return {"guided_grammar": grammar}
        return {"structured_outputs": {"grammar": grammar}}


def _version(build: str | None) -> tuple[int, int] | None:
    """Major and minor number; None for versions between releases."""
    numbers = re.match(r"v?(\d{1,4})\.(\d{1,4})", build or "")
    return (int(numbers[1]), int(numbers[2])) if numbers else None


VLLM = VllmKind()
