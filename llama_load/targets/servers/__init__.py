"""The kinds of servers: one file for each. Ask the object; nothing outside of this folder compares its name."""

from __future__ import annotations

from llama_load.targets.servers.llama_cpp_python_kind import LLAMA_CPP_PYTHON
from llama_load.targets.servers.llama_server_kind import LLAMA_SERVER
from llama_load.targets.servers.server_kind import ANY, Metrics, ServerKind
from llama_load.targets.servers.sglang_kind import SGLANG
from llama_load.targets.servers.tgi_kind import TGI
from llama_load.targets.servers.vllm_kind import VLLM

__all__ = ["ANY", "FORMS", "KINDS", "METRICS", "ServerKind", "kind_named"]

# The first that a server's signs show is its kind. Token counting is tried in this order, too: llama-server ignores the fields of
# vLLM's form and counts 0, vLLM refuses llama-server's.
KINDS: dict[str, ServerKind] = {
    kind.name: kind
    for kind in (
        LLAMA_SERVER,
        VLLM,
        LLAMA_CPP_PYTHON,
        SGLANG,
        TGI,
        ANY,
    )
}
FORMS = tuple(dict.fromkeys(kind.form for kind in KINDS.values() if kind.form is not None))
METRICS: tuple[Metrics, ...] = tuple(kind.metrics for kind in KINDS.values() if kind.metrics is not None)


def kind_named(name: str | None) -> ServerKind:
    """The kind of this name, as in --backend; of an unknown one nothing is assumed."""
    return KINDS.get(name or "", ANY)
