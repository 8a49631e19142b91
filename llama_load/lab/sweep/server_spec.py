"""A planned server as a `ServerSpec`, and what tables say of it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llama_load.ground.errors import UsageError
from llama_load.lab.sweep.grammar import COMMANDS, FIT, URL, WORDS
from llama_load.lab.sweep.plan import PlannedServer
from llama_load.servers.kinds import ANY, ServerSpec, kind_named, start_of


def spec_of(server: PlannedServer) -> ServerSpec:
    """How to start it.

    UsageError: quotes that are not closed, or what `ServerSpec` and `start_of` refuse.
    """
    fields: dict[str, Any] = {}
    for name, value in server.settings.items():
        if name == FIT:
            continue
        if name in WORDS:
            value = words(value)
        elif name in COMMANDS:
            value = tuple(words(command) for command in value)
        elif name == "env":
            value = {key: str(variable) for key, variable in value.items()}
        fields[name.replace("-", "_")] = value

    spec = ServerSpec(kind=server.kind, **fields)
    start_of(spec)
    return spec


def words(value: Any) -> tuple[str, ...]:
    """The words of a command line, given as a text or several; no shell reads them."""
    texts = [value] if isinstance(value, str) else value
    split: list[str] = []
    try:
        for text in texts:
            split += shlex.split(str(text))
    except ValueError as error:
        command = " ".join(map(str, texts))
        raise UsageError(f"the command {command!r} cannot be read: {error}") from None
    return tuple(split)


def words_of(server: PlannedServer) -> tuple[str, ...]:
    """The words of the server's arguments; none of a URL."""
    try:
        return words(server.settings.get("args", []))
    except UsageError:
        return ()


def backend_name(kind: str) -> str:
    """llama-server -> llama.cpp."""
    known = kind_named(kind)
    return kind if known is ANY else known.title


def model_path(server: PlannedServer) -> Path | None:
    """The model's file or folder, if it is one on this machine."""
    given = _model_given(server)
    if not given or server.kind == URL:
        return None
    path = Path(given).expanduser()
    return path if path.exists() else None


def model_name(server: PlannedServer) -> str:
    """The name of a file or folder, else what was given: meta-llama/Llama-2-7b-chat-hf."""
    given = _model_given(server)
    if given.endswith(".gguf") or (given and Path(given).exists()):
        return Path(given).name
    if not given and server.start is not None and server.start.makes_model:
        return "small random model"
    return given


def _model_given(server: PlannedServer) -> str:
    """The model as the plan gives it, empty if it does not."""
    return str(
        server.settings.get("model") or argument(words_of(server), "-m", "--model")
    )


def uses_rpc(server: PlannedServer) -> bool:
    """Whether it computes on RPC workers."""
    return bool(server.settings.get("rpc") or server.settings.get("rpc-workers"))


def gpu_count(server: PlannedServer) -> str:
    """The number of devices that CUDA_VISIBLE_DEVICES names; empty if it is not set."""
    devices = str(server.settings.get("env", {}).get("CUDA_VISIBLE_DEVICES", ""))
    if not devices:
        return ""
    return str(sum(1 for device in devices.split(",") if device.strip()))


def argument(words: Sequence[str], *flags: str) -> str:
    """The value of a flag on a command line, the last one given; empty without it.

    `-t 8` or `--threads=8`.
    """
    value = ""
    for place, word in enumerate(words):
        name, is_joined, joined = word.partition("=")
        if name in flags:
            following = words[place + 1] if place + 1 < len(words) else ""
            value = joined if is_joined else following
    return value
