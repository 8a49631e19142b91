"""Hugging Face's Text Generation Inference. Written from its source: router/src/lib.rs,
router/src/server.rs."""

from __future__ import annotations

from typing import ClassVar

from llama_load.servers.json_fields import count
from llama_load.servers.kinds.server_kind import Form, Metrics, ServerKind, Signs


class TgiKind(ServerKind):
    """See `ServerKind`. It reports no cached tokens, neither in answers nor in counters, and knows
    no `ignore_eos`."""

    name = "tgi"
    title = "TGI"
    ends_by_reason = True
    context_flag = "--max-total-tokens"
    remedies: ClassVar = {
        "ttft": "a larger --max-batch-prefill-tokens",
        "tpot": "a quantized model (--quantize), more GPUs (--num-shard), or --speculate",
    }
    form = Form("/tokenize", lambda _, text: {"inputs": text}, is_list=True)
    # Tokens are the sums of histograms; the lengths of prompts are counted when they have been
    # validated.
    metrics = Metrics(
        prefix="tgi_",
        prompt_tokens="request_input_length_sum",
        output_tokens="request_generated_tokens_sum",
        requests="request_success",
        running="batch_current_size",
        waiting="queue_size",
    )

    def is_shown_by(self, signs: Signs) -> bool:
        """See `ServerKind.is_shown_by`."""
        router = signs.info.get("router")
        return (
            isinstance(router, str)
            and router.startswith("text-generation-router")
            and self.context(signs) is not None
        )

    def context(self, signs: Signs) -> int | None:
        """See `ServerKind.context`."""
        return count(signs.info.get("max_total_tokens"))


TGI = TgiKind()
