"""llama.cpp's llama-server."""

from __future__ import annotations

from typing import Any, ClassVar

from llama_load.targets.servers.server_kind import NO_ADAPTER, Form, Metrics, ServerKind, Signs

TEXT_APIS = ("completions", "completion", "infill")


class LlamaServerKind(ServerKind):
    """See `ServerKind`. It announces that it keeps a connection after a stream, but closes it."""

    name = "llama-server"
    title = "llama.cpp"
    keeps_connections = False
    holds_headers = True
    has_cache_switch = True
    divides_context = True
    fills_context = True
    slots_path = "/slots"
    adapters_path = "/lora-adapters"
    remedies: ClassVar = {
        "ttft": "a larger -ub, or more layers on the GPU (-ngl)",
        "tpot": "more layers on the GPU (-ngl), a smaller quantization, or a draft model (-md)",
    }
    form = Form(
        "/tokenize",
        lambda model, text: {"model": model or "", "content": text, "add_special": True},
        template_path="/apply-template",
    )
    # It counts processed prompt tokens, without cached ones, and looks up every prompt. Tokens that --cache-ram brings back from
    # the host's memory are cached ones.
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
        return "total_slots" in signs.props or (signs.is_owned_by("llamacpp") and (trained or signs.form is self.form))

    def schema_fields(self, api: str, schema: Any) -> dict[str, Any] | None:
        """See `ServerKind.schema_fields`."""
        return {"json_schema": schema} if api in TEXT_APIS else super().schema_fields(api, schema)

    def grammar_fields(self, api: str, grammar: str, build: str | None) -> dict[str, Any] | None:
        """See `ServerKind.grammar_fields`."""
        return {"grammar": grammar} if api in ("chat", *TEXT_APIS) else None

    def adapter_fields(self, api: str, adapter: str) -> dict[str, Any] | None:
        """See `ServerKind.adapter_fields`. A request that names adapters gets no others. An empty list means the server's own
        scales, so no adapter is the first one with scale 0."""
        entry = {"id": 0, "scale": 0.0} if adapter == NO_ADAPTER else {"id": int(adapter), "scale": 1.0}
        return {"lora": [entry]} if api in ("chat", *TEXT_APIS) else None


LLAMA_SERVER = LlamaServerKind()
