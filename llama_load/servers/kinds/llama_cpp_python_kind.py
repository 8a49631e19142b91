"""llama-cpp-python's server."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from llama_load.ground.own_modules import NOT_FROM_HERE
from llama_load.servers.kinds.server_kind import Form, ServerKind, Signs
from llama_load.servers.kinds.server_start import (
    LLAMA_CPP_VARIABLES,
    Command,
    ServerSpec,
    ServerStart,
    has_flag,
    refuse_other_than_gguf,
)

# Its own --rpc_servers is accepted and ignored (0.3.36), so our script registers the workers.
RPC_SCRIPT = Path(__file__).with_name("llama_cpp_python_rpc.py")
MODULE = ["-m", "llama_cpp.server"]


class LlamaCppPythonStart(ServerStart):
    """`python -m llama_cpp.server`, on request with RPC workers."""

    name = "llama-cpp-python"
    help = "start python -m llama_cpp.server"
    typed = "python -m llama_cpp.server …"
    program = sys.executable
    takes_rpc = True
    key_variable = "API_KEY"
    variables = LLAMA_CPP_VARIABLES
    tls_key_flag = "--ssl_keyfile"
    ready_path = "/v1/models"

    def command(self, spec: ServerSpec, port: int, workers: Command = ()) -> Command:
        """See `ServerStart.command`."""
        if spec.model:
            refuse_other_than_gguf(Path(spec.model))
        how = list(MODULE)
        if workers:
            how = [str(RPC_SCRIPT), "head", ",".join(workers)]
        elif self.program_of(spec) == sys.executable:  # others may not know the flag
            how.insert(0, NOT_FROM_HERE)
        command = [
            self.program_of(spec),
            *how,
            "--host",
            spec.host,
            "--port",
            str(port),
        ]
        if spec.model:
            command += ["--model", spec.model]
        if not has_flag(spec.args, "--interrupt_requests"):
            # by default a new request cuts off the running one
            command += ["--interrupt_requests", "false"]
        if workers and not has_flag(spec.args, "--n_gpu_layers"):
            command += ["--n_gpu_layers", "-1"]
        return (*command, *spec.args)

    def worker_command(self, spec: ServerSpec, address: str) -> Command:
        """See `ServerStart.worker_command`."""
        return (
            *(spec.rpc_worker or (self.program_of(spec), str(RPC_SCRIPT), "worker")),
            address,
        )

    def is_started_by(self, program: str, arguments: Sequence[str]) -> int | None:
        """See `ServerStart.is_started_by`."""
        begin = 1 if list(arguments[:1]) == [NOT_FROM_HERE] else 0
        end = begin + len(MODULE)
        return end if list(arguments[begin:end]) == MODULE else None

    def hidden_flags(self, command: Sequence[str]) -> Sequence[str]:
        """See `ServerStart.hidden_flags`: the workers of our script."""
        return (
            ("--rpc_servers", *command[command.index("head") + 1 :][:1])
            if "head" in command
            else ()
        )


class LlamaCppPythonKind(ServerKind):
    """See `ServerKind`. It has no /metrics."""

    name = "llama-cpp-python"
    title = "llama-cpp-python"
    hides_template = True
    slots_note = (
        "1 at a time; start the server with --interrupt_requests false, or new requests "
        "cut off earlier ones"
    )
    context_flag = "--n_ctx"
    scores_by = "echo"
    ends_by_reason = True  # one that a newer request interrupts ends with [DONE] alone
    failure_hints: ClassVar = {
        "cut_off": "start the server with --interrupt_requests false, or new requests cut off "
        "earlier ones",
        "empty_answer": "the prompt may exceed the context: start the server with a larger --n_ctx",
    }
    starts = (LlamaCppPythonStart(),)
    flags: ClassVar = {
        "model": ("--model",),
        "n_gpu_layers": ("--n_gpu_layers",),
        "kv_type": ("--type_k",),
        "v_type": ("--type_v",),
        "rpc": ("--rpc_servers",),
        "threads": ("--n_threads",),
        "threads_batch": ("--n_threads_batch",),
        "batch": ("--n_batch",),
        "micro_batch": ("--n_ubatch",),
        "context": ("--n_ctx",),
    }
    form = Form("/extras/tokenize/count", lambda _, text: {"input": text})

    def is_shown_by(self, signs: Signs) -> bool:
        """See `ServerKind.is_shown_by`."""
        return {model.owner for model in signs.listed} == {
            "me"
        } and signs.form is self.form

    def schema_fields(self, api: str, schema: Any) -> dict[str, Any] | None:
        """See `ServerKind.schema_fields`."""
        own = {"response_format": {"type": "json_object", "schema": schema}}
        return {"chat": own, "responses": super().schema_fields(api, schema)}.get(api)

    def grammar_fields(
        self, api: str, grammar: str, build: str | None
    ) -> dict[str, Any] | None:
        """See `ServerKind.grammar_fields`."""
        return {"grammar": grammar} if api in {"chat", "completions"} else None


LLAMA_CPP_PYTHON = LlamaCppPythonKind()
