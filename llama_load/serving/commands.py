"""The command line of each kind of server."""

from __future__ import annotations

import os
import shutil
import sys
from itertools import pairwise
from pathlib import Path

from llama_load.bundled import bundled
from llama_load.errors import UsageError
from llama_load.foreign_text import MASK, is_secret_name
from llama_load.serving.model_maker import ModelSize, cached_model
from llama_load.serving.process import SERVER_KEY, EmbeddedServer, refuse_other_than_gguf
from llama_load.serving.spec import Command, ServerSpec

# Where each kind reads its API key.
KEY_VARIABLES = {"embedded": SERVER_KEY, "llama-server": "LLAMA_API_KEY", "vllm": "VLLM_API_KEY", "llama-cpp-python": "API_KEY"}
# Else llama.cpp starts a debugger when it aborts: that takes seconds and hides the reason behind its output.
NO_BACKTRACE = "GGML_NO_BACKTRACE"
# The flags and variables by which each kind serves TLS (both files are needed), and below a path.
TLS_KEY_FLAGS = {"llama-server": "--ssl-key-file", "vllm": "--ssl-keyfile", "llama-cpp-python": "--ssl_keyfile"}
TLS_KEY_VARIABLE = "LLAMA_ARG_SSL_KEY_FILE"
PREFIX_FLAG, PREFIX_VARIABLE = "--api-prefix", "LLAMA_ARG_API_PREFIX"
READY_PATHS = {"llama-cpp-python": "/v1/models"}  # others: /health
RPC_SCRIPT = Path(__file__).with_name("llama_cpp_python_rpc.py")
# The level at which llama.cpp logs its buffers and the memory breakdown. Until the end of 2025 they came at the default level, and
# level 4 was not yet a level of its own.
LOG_LEVEL = "4"


def server_command(spec: ServerSpec, port: int, workers: Command = ()) -> Command:
    """The command that serves `spec` on `port`, computing on these RPC workers, without `wrap`.

    UsageError: the model or the program is missing.
    """
    match spec.kind:
        case "embedded":
            return _embedded(spec, port)
        case "llama-server":
            return _llama_server(spec, port, workers)
        case "vllm":
            if not spec.model:
                raise UsageError("vllm needs a model: a folder or a name of Hugging Face, such as Qwen/Qwen3-0.6B")
            return (program_of(spec), "serve", spec.model, "--host", spec.host, "--port", str(port), *spec.args)
        case "llama-cpp-python":
            return _llama_cpp_python(spec, port, workers)


def model_of(spec: ServerSpec) -> str:
    """The model's path or name: the embedded server has one of its own."""
    if spec.kind == "embedded" and not spec.model:
        return str(cached_model(ModelSize(), bundled("datasets/sharegpt_sample.json")))
    return spec.model


def environment(spec: ServerSpec) -> dict[str, str]:
    """What is added to the environment: the key, then `spec.env`."""
    added = {} if spec.kind == "vllm" else {NO_BACKTRACE: "1"}
    if spec.api_key:
        added[KEY_VARIABLES[spec.kind]] = spec.api_key
    return added | dict(spec.env)


def program_of(spec: ServerSpec) -> str:
    """The path of the server's program. UsageError: there is none."""
    if spec.kind == "embedded":
        return sys.executable
    usual = {"llama-server": "llama-server", "vllm": "vllm", "llama-cpp-python": sys.executable}[spec.kind]
    return found(spec.program or usual, "--program takes its path")


def found(program: str, hint: str) -> str:
    """The path of a program. UsageError: it is neither a file that we may run nor in PATH."""
    path = shutil.which(program)
    if path is None:
        raise UsageError(f"there is no program {program!r} that can be run; {hint}")
    return path


def scheme_and_prefix(spec: ServerSpec) -> tuple[str, str]:
    """How the server's URL begins, http or https, and the path that llama-server puts before all others ("" if none).

    Flags come before variables, as in llama-server: `--ssl-key-file` or LLAMA_ARG_SSL_KEY_FILE, `--api-prefix` or
    LLAMA_ARG_API_PREFIX.
    """
    variables = os.environ | dict(spec.env) if spec.kind == "llama-server" else {}
    key = _value(spec.args, TLS_KEY_FLAGS.get(spec.kind, "")) or variables.get(TLS_KEY_VARIABLE)
    prefix = (_value(spec.args, PREFIX_FLAG) or variables.get(PREFIX_VARIABLE, "")) if spec.kind == "llama-server" else ""
    prefix = prefix.rstrip("/")
    return "https" if key else "http", f"/{prefix.lstrip('/')}" if prefix else ""


def _value(args: Command, flag: str) -> str:
    """The value of a flag, of several the last; "" if it is not given."""
    values = ["", *(value for name, value in pairwise(args) if name == flag)]
    values += [each.partition("=")[2] for each in args if flag and each.startswith(f"{flag}=")]
    return values[-1]


def worker_command(spec: ServerSpec, address: str) -> Command:
    """The command of an RPC worker that listens on `address`. UsageError: its program is missing."""
    if spec.kind == "llama-cpp-python":
        return (*(spec.rpc_worker or (program_of(spec), str(RPC_SCRIPT), "worker")), address)
    host, _, port = address.rpartition(":")
    worker = spec.rpc_worker or (_rpc_server_beside(program_of(spec)),)
    return (found(worker[0], "--rpc-worker takes the worker's command"), *worker[1:], "-H", host, "-p", port)


def without_secrets(command: Command) -> Command:
    """The command with the values of flags and variables that are named like secrets masked: --api-key ***, HF_TOKEN=***."""
    shown: list[str] = []
    is_secret = False
    for each in command:
        name, is_joined, _ = each.partition("=")
        if is_secret and not each.startswith("--"):
            each = MASK
        elif is_joined and (each.startswith("-") or name.isupper()) and is_secret_name(name):
            each = f"{name}={MASK}"
        is_secret = each.startswith("--") and not is_joined and is_secret_name(name)
        shown.append(each)
    return tuple(shown)


def _embedded(spec: ServerSpec, port: int) -> Command:
    model = Path(model_of(spec))
    refuse_other_than_gguf(model)
    return tuple(EmbeddedServer(model, spec.host, flags=spec.args).command(port))


def _llama_server(spec: ServerSpec, port: int, workers: Command) -> Command:
    command = [program_of(spec)]
    if spec.model:
        refuse_other_than_gguf(Path(spec.model))
        command += ["-m", spec.model]
    command += ["--host", spec.host, "--port", str(port)]
    if "--metrics" not in spec.args:
        command += ["--metrics"]
    if not _has(spec.args, "-lv", "--verbosity", "--log-verbosity", "-v", "--verbose", "--log-verbose", "--log-disable"):
        command += ["-lv", LOG_LEVEL]
    if workers:
        command += ["--rpc", ",".join(workers)]
        if not _has(spec.args, "-ngl", "--gpu-layers", "--n-gpu-layers"):
            command += ["-ngl", "99"]  # only layers for devices other than the CPU, as the workers are, leave this process
    return (*command, *spec.args)


def _llama_cpp_python(spec: ServerSpec, port: int, workers: Command) -> Command:
    if spec.model:
        refuse_other_than_gguf(Path(spec.model))
    # Its own --rpc_servers is accepted and ignored (0.3.36), so our script registers the workers.
    how = (str(RPC_SCRIPT), "head", ",".join(workers)) if workers else ("-m", "llama_cpp.server")
    command = [program_of(spec), *how, "--host", spec.host, "--port", str(port)]
    if spec.model:
        command += ["--model", spec.model]
    if not _has(spec.args, "--interrupt_requests"):
        command += ["--interrupt_requests", "false"]  # by default a new request cuts off the running one
    if workers and not _has(spec.args, "--n_gpu_layers"):
        command += ["--n_gpu_layers", "-1"]
    return (*command, *spec.args)


def _has(args: Command, *names: str) -> bool:
    return any(each.partition("=")[0] in names for each in args)


def _rpc_server_beside(server: str) -> str:
    """ggml-rpc-server, under its earlier name rpc-server too, in the server's folder; else its name, for PATH."""
    for name in ("ggml-rpc-server", "rpc-server"):
        path = Path(server).resolve().with_name(name)
        if path.is_file():
            return str(path)
    return "ggml-rpc-server"
