"""How a kind of server is started: its program, flags, environment and paths.
`llama_load.servers.serving.launch.serving` starts a `ServerSpec`."""

from __future__ import annotations

import re
import shlex
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

from llama_load.ground.errors import UsageError
from llama_load.ground.own_modules import child_environment
from llama_load.outside.foreign_files import begin_of

# A large model is read from a disk at 200 MB/s: 60 GB take five minutes. vLLM compiles for minutes,
# too.
READY_WITHIN_S = 600.0
GGUF_MAGIC = b"GGUF"
DEFAULT_START = "embedded"  # of `llama-load serve`
SERVER_KEY = "LLAMA_LOAD_SERVER_API_KEY"  # the API key of servers that we start
# Else llama.cpp starts a debugger when it aborts: that takes seconds and hides the reason behind
# its output.
LLAMA_CPP_VARIABLES = {"GGML_NO_BACKTRACE": "1"}

Command = tuple[str, ...]
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}")


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """A server to start, and what to run around it. Commands are lists of arguments; no shell reads
    them.

    An RPC cluster is a llama-server or llama-cpp-python with `rpc_workers` of its own on this
    machine, with workers that run already (`rpc`), or both.
    """

    kind: str = DEFAULT_START  # the name of a `ServerStart`
    # a .gguf file; vllm: a folder or name of Hugging Face; embedded: "" is a small random model
    model: str = ""
    # llama-server's or vllm's path, or the Python that has llama_cpp; "" looks in PATH
    program: str = ""
    args: Command = ()  # further flags of the server, as they are
    host: str = "127.0.0.1"
    port: int = 0  # 0: a free one
    env: Mapping[str, str] = field(default_factory=dict)  # added to ours
    # passed in the environment: every user of a machine can read command lines
    api_key: str = ""
    wrap: Command = ()  # put before the server's command: numactl --interleave=3
    alongside: tuple[
        Command, ...
    ] = ()  # started before the server, watched, stopped after it
    # run to their end before anything else; one that fails ends the start
    set_up: tuple[Command, ...] = ()
    clean_up: tuple[Command, ...] = ()  # always run at the end
    rpc: Command = ()  # addresses of RPC workers, HOST:PORT
    rpc_workers: int = 0  # RPC workers to start on this machine
    # their command without address; () looks for ggml-rpc-server beside the server, then in PATH
    rpc_worker: Command = ()
    ready_within_s: float = READY_WITHIN_S
    # it leaves a core to its client, and other load tests do not find its log
    is_for_one_client: bool = False

    def __post_init__(self) -> None:
        """UsageError: an address that is none."""
        for address in self.rpc:
            if (
                not _ADDRESS.fullmatch(address)
                or int(address.rpartition(":")[2]) > 65535
            ):
                raise UsageError(
                    f"RPC workers are HOST:PORT, several with commas between them, got {address!r}"
                )


class ServerStart(ABC):
    """One way to start a server; the file of its kind has such an object.

    `name`: KIND of `llama-load serve`, a key in plans of sweeps; `help`: what it starts, for people
    who write plans; `typed`: its command as people type it. `program`: the usual program ("": none
    can be chosen). `required_model`: what to give as the model where flags cannot name it;
    `makes_model`: without one it serves a small random model. `takes_rpc`: it computes on RPC
    workers, if asked. `fits_memory`: `llama-fit-params` takes its flags. `key_variable`: where it
    reads its API key; `variables`: others that it needs. `tls_key_flag`, `tls_key_variable`: with
    these it serves TLS; `prefix_flag`, `prefix_variable`: with these it puts a path before all of
    its own. `ready_path` answers 200 when it is ready. `model_flags`: name the model on its command
    line.
    """

    name: ClassVar[str]
    help: ClassVar[str]
    typed: ClassVar[str]
    program: ClassVar[str] = ""
    required_model: ClassVar[str] = ""
    makes_model: ClassVar[bool] = False
    takes_rpc: ClassVar[bool] = False
    fits_memory: ClassVar[bool] = False
    key_variable: ClassVar[str] = ""
    variables: ClassVar[Mapping[str, str]] = {}
    tls_key_flag: ClassVar[str] = ""
    tls_key_variable: ClassVar[str] = ""
    prefix_flag: ClassVar[str] = ""
    prefix_variable: ClassVar[str] = ""
    ready_path: ClassVar[str] = "/health"
    model_flags: ClassVar[Sequence[str]] = ("--model",)

    @abstractmethod
    def command(self, spec: ServerSpec, port: int, workers: Command = ()) -> Command:
        """The command that serves `spec` on `port`, computing on these RPC workers, without `wrap`.

        UsageError: the model or the program is missing.
        """

    def worker_command(self, spec: ServerSpec, address: str) -> Command:
        """The command of an RPC worker that listens on `address`. UsageError: its program is
        missing, or this kind has none."""
        raise UsageError(f"{self.name} has no RPC workers")

    @abstractmethod
    def is_started_by(self, program: str, arguments: Sequence[str]) -> int | None:
        """Whether this command (`program` without its folder) starts it: the number of arguments
        before its flags; None: no."""

    def size_flags(
        self, slots: int | None, ctx_per_slot: int | None, threads: int | None
    ) -> list[str] | None:
        """The flags for slots, tokens of a slot, and compute threads; None: it has no such
        flags."""
        return None

    def hidden_flags(self, command: Sequence[str]) -> Sequence[str]:
        """What a command line of this kind says without a flag, as flags: the model of `vllm serve
        MODEL`."""
        return ()

    def program_of(self, spec: ServerSpec) -> str:
        """The path of the server's program. UsageError: there is none."""
        return runnable(spec.program or self.program, "--program takes its path")

    def environment(self, spec: ServerSpec) -> dict[str, str]:
        """What is added to the environment: the key, then `spec.env`."""
        key = {self.key_variable: spec.api_key} if spec.api_key else {}
        return {**self.variables, **key, **spec.env}

    def scheme_and_prefix(self, spec: ServerSpec) -> tuple[str, str]:
        """How the server's URL begins, http or https, and the path that it puts before all others
        ("" if none).

        Flags come before variables, as in llama-server.
        """
        variables = child_environment(spec.env)
        key = value_of(spec.args, self.tls_key_flag)
        if not key:
            key = variables.get(self.tls_key_variable, "")
        scheme = "https" if key else "http"

        prefix = value_of(spec.args, self.prefix_flag)
        if not prefix:
            prefix = variables.get(self.prefix_variable, "")
        prefix = prefix.strip("/")
        return scheme, f"/{prefix}" if prefix else ""

    def settings_of(
        self, program: str, arguments: Sequence[str]
    ) -> dict[str, Any] | None:
        """The fields of a `ServerSpec` in a command as people type it; None: it does not start this
        kind. Host and port are left out: whoever starts the server chooses them."""
        flags_begin = self.is_started_by(Path(program).name, arguments)
        if flags_begin is None:
            return None
        settings: dict[str, Any] = {"program": program} if self.program else {}
        rest: list[str] = []
        words = iter(
            [*self.hidden_flags((program, *arguments)), *arguments[flags_begin:]]
        )
        for word in words:
            if word in self.model_flags:
                settings["model"] = next(words, "")
            elif word in ("--host", "--port"):
                next(words, "")
            else:
                rest.append(word)
        return settings | {"args": [shlex.join(rest)] if rest else []}


def runnable(program: str, hint: str) -> str:
    """The path of a program. UsageError: it is neither a file that we may run nor in PATH."""
    path = shutil.which(program)
    if path is None:
        raise UsageError(f"there is no program {program!r} that can be run; {hint}")
    return path


def value_of(args: Sequence[str], flag: str) -> str:
    """The value of a flag, of several the last; "" if it is not given."""
    value = ""
    if not flag:
        return value

    for word, after in pairwise(args):
        if word == flag:
            value = after
    for word in args:
        if word.startswith(f"{flag}="):
            value = word.partition("=")[2]
    return value


def has_flag(args: Sequence[str], *names: str) -> bool:
    """Whether one of these flags is given."""
    return any(word.partition("=")[0] in names for word in args)


def refuse_other_than_gguf(model: Path) -> None:
    """UsageError: there is no model file, or it is not GGUF."""
    if not model.is_file():
        raise UsageError(
            f"there is no model file {model}; --model takes the path of a .gguf file"
        )
    if begin_of(model, len(GGUF_MAGIC)) != GGUF_MAGIC:
        raise UsageError(
            f"{model} is not a GGUF file; --model takes the path of a .gguf file"
        )
