"""SGLang. Written from its source: python/sglang/srt/entrypoints/openai/protocol.py,
python/sglang/srt/metrics/collector.py."""

from __future__ import annotations

from typing import ClassVar

from llama_load.servers.kinds.server_kind import Metrics, ServerKind, Signs
from llama_load.servers.kinds.vllm_kind import VLLM


class SglangKind(ServerKind):
    """See `ServerKind`. Answers report cached tokens only with --enable-cache-report; /metrics
    needs --enable-metrics."""

    name = "sglang"
    title = "SGLang"
    ends_by_reason = True
    context_flag = "--context-length"
    remedies: ClassVar = {
        "ttft": "a larger --max-running-requests or --chunked-prefill-size",
        "tpot": "a quantized model, more GPUs (--tp), or --speculative-algorithm",
    }
    cache_off_flags = ("--disable-radix-cache",)
    cache_reset = "/flush_cache"
    profile_start = "/start_profile"
    profile_stop = "/stop_profile"
    form = VLLM.form
    # Prompt tokens include cached ones. Cached tokens have a label for where they were (device,
    # host, storage): all are added up.
    metrics = Metrics(
        prefix="sglang:",
        prompt_tokens="prompt_tokens",
        output_tokens="generation_tokens",
        hits="cached_tokens",
        requests="num_requests",
        preemptions="num_retracted_requests",
        running="num_running_reqs",
        waiting="num_queue_reqs",
        kv_used=("token_usage",),
    )

    def is_shown_by(self, signs: Signs) -> bool:
        """See `ServerKind.is_shown_by`."""
        return signs.is_owned_by("sglang") and (
            signs.lists_context or signs.form is self.form
        )


SGLANG = SglangKind()
