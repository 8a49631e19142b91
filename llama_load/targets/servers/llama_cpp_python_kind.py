"""llama-cpp-python's server."""

from __future__ import annotations

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


LLAMA_CPP_PYTHON = LlamaCppPythonKind()
