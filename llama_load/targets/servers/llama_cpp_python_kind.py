"""llama-cpp-python's server."""

from __future__ import annotations

from typing import Any

from llama_load.targets.servers.server_kind import Form, ServerKind, Signs


class LlamaCppPythonKind(ServerKind):
    """See `ServerKind`. It has no /metrics."""

    name = "llama-cpp-python"
    title = "llama-cpp-python"
    hides_template = True
    slots_note = "1 at a time; start the server with --interrupt_requests false, or new requests cut off earlier ones"
    context_flag = "--n_ctx"
    scores_by = "echo"
    form = Form("/extras/tokenize/count", lambda _, text: {"input": text})

    def is_shown_by(self, signs: Signs) -> bool:
        """See `ServerKind.is_shown_by`."""
        return {model.owner for model in signs.listed} == {"me"} and signs.form is self.form

    def schema_fields(self, api: str, schema: Any) -> dict[str, Any] | None:
        """See `ServerKind.schema_fields`."""
        own = {"response_format": {"type": "json_object", "schema": schema}}
        return {"chat": own, "responses": super().schema_fields(api, schema)}.get(api)

    def grammar_fields(self, api: str, grammar: str, build: str | None) -> dict[str, Any] | None:
        """See `ServerKind.grammar_fields`."""
        return {"grammar": grammar} if api in {"chat", "completions"} else None


LLAMA_CPP_PYTHON = LlamaCppPythonKind()
