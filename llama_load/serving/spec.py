"""What to serve: a `ServerSpec`. `llama_load.serving.launch.serving` starts it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from llama_load.errors import UsageError

Kind = Literal["llama-server", "embedded", "vllm", "llama-cpp-python"]
KINDS: tuple[Kind, ...] = get_args(Kind)
# A large model is read from a disk at 200 MB/s: 60 GB take five minutes. vLLM compiles for minutes, too.
READY_WITHIN_S = 600.0

Command = tuple[str, ...]
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}")


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """A server to start, and what to run around it. Commands are lists of arguments; no shell reads them.

    An RPC cluster is a llama-server or llama-cpp-python with `rpc_workers` of its own on this machine, with workers that run
    already (`rpc`), or both.
    """

    kind: Kind = "embedded"
    model: str = ""  # a .gguf file; vllm: a folder or name of Hugging Face; embedded: "" is a small random model
    program: str = ""  # llama-server's or vllm's path, or the Python that has llama_cpp; "" looks in PATH
    args: Command = ()  # further flags of the server, as they are
    host: str = "127.0.0.1"
    port: int = 0  # 0: a free one
    env: Mapping[str, str] = field(default_factory=dict)  # added to ours
    api_key: str = ""  # passed in the environment: every user of a machine can read command lines
    wrap: Command = ()  # put before the server's command: numactl --interleave=3
    alongside: tuple[Command, ...] = ()  # started before the server, watched, stopped after it
    set_up: tuple[Command, ...] = ()  # run to their end before anything else; one that fails ends the start
    clean_up: tuple[Command, ...] = ()  # always run at the end
    rpc: Command = ()  # addresses of RPC workers, HOST:PORT
    rpc_workers: int = 0  # RPC workers to start on this machine
    rpc_worker: Command = ()  # their command without address; () looks for ggml-rpc-server beside the server, then in PATH
    ready_within_s: float = READY_WITHIN_S

    def __post_init__(self) -> None:
        """UsageError: what cannot be served."""
        if self.kind not in KINDS:
            raise UsageError(f"the kind of server must be one of {', '.join(KINDS)}, got {self.kind!r}")
        if (self.rpc or self.rpc_workers) and self.kind not in ("llama-server", "llama-cpp-python"):
            raise UsageError(f"RPC workers need llama-server or llama-cpp-python; {self.kind} has no RPC")
        for address in self.rpc:
            if not _ADDRESS.fullmatch(address) or int(address.rpartition(":")[2]) > 65535:
                raise UsageError(f"RPC workers are HOST:PORT, several with commas between them, got {address!r}")
