"""The kinds of servers: one file for each. Ask the object; nothing outside of this folder compares
its name."""

from __future__ import annotations

from llama_load.ground.errors import UsageError
from llama_load.ground.plugins import SERVERS, added
from llama_load.servers.kinds.llama_cpp_python_kind import LLAMA_CPP_PYTHON
from llama_load.servers.kinds.llama_server_kind import LLAMA_SERVER
from llama_load.servers.kinds.server_kind import ANY, Metrics, ServerKind
from llama_load.servers.kinds.server_start import ServerSpec, ServerStart
from llama_load.servers.kinds.sglang_kind import SGLANG
from llama_load.servers.kinds.tgi_kind import TGI
from llama_load.servers.kinds.vllm_kind import VLLM

__all__ = [
    "ANY",
    "FORMS",
    "KINDS",
    "METRICS",
    "STARTS",
    "ServerKind",
    "ServerSpec",
    "ServerStart",
    "kind_named",
    "start_of",
]

# The first that a server's signs show is its kind. Token counting is tried in this order, too:
# llama-server ignores the fields of vLLM's form and counts 0, vLLM refuses llama-server's.
KINDS: dict[str, ServerKind] = {
    kind.name: kind
    for kind in (
        LLAMA_SERVER,
        VLLM,
        LLAMA_CPP_PYTHON,
        SGLANG,
        TGI,
        *added(SERVERS, ServerKind),
        ANY,
    )
}
FORMS = tuple(
    dict.fromkeys(kind.form for kind in KINDS.values() if kind.form is not None)
)
METRICS: tuple[Metrics, ...] = tuple(
    kind.metrics for kind in KINDS.values() if kind.metrics is not None
)
# The ways to start a server, by the KIND of `llama-load serve`.
STARTS: dict[str, ServerStart] = {
    start.name: start for kind in KINDS.values() for start in kind.starts
}
_STARTED = {start.name: kind for kind in KINDS.values() for start in kind.starts}


def kind_named(name: str | None) -> ServerKind:
    """The kind of this name, as in --backend or in `STARTS`; of an unknown one nothing is
    assumed."""
    return (_STARTED | KINDS).get(name or "", ANY)


def start_of(spec: ServerSpec) -> ServerStart:
    """How this server is started. UsageError: it is of no kind that we start, or has RPC workers
    that its kind cannot use."""
    start = STARTS.get(spec.kind)
    if start is None:
        raise UsageError(
            f"the kind of server must be one of {', '.join(STARTS)}, got {spec.kind!r}"
        )
    if (spec.rpc or spec.rpc_workers) and not start.takes_rpc:
        able = " or ".join(other.name for other in STARTS.values() if other.takes_rpc)
        raise UsageError(f"RPC workers need {able}; {start.name} has no RPC")
    return start
