"""A planned server as a `ServerSpec`, and what tables say of it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llama_load.errors import UsageError
from llama_load.lab.sweep.grammar import COMMANDS, FIT, URL, WORDS
from llama_load.lab.sweep.plan import PlannedServer
from llama_load.targets.servers import ANY, ServerSpec, kind_named, start_of


def spec_of(server: PlannedServer) -> ServerSpec:
    """How to start it. UsageError: quotes that are not closed, or what `ServerSpec` and `start_of` refuse."""
    fields: dict[str, Any] = {}
    for name, value in server.settings.items():
        if name in WORDS:
            value = words(value)
        elif name in COMMANDS:
            value = tuple(words(command) for command in value)
        elif name == "env":
            value = {key: str(field_value) for key, field_value in value.items()}
        if name != FIT:
            fields[name.replace("-", "_")] = value
    spec = ServerSpec(kind=server.kind, **fields)
    start_of(spec)
    return spec


def words(value: Any) -> tuple[str, ...]:
    """The words of a command line, given as a text or several; no shell reads them."""
    texts = [value] if isinstance(value, str) else value
    try:
        return tuple(word for text in texts for word in shlex.split(str(text)))
    except ValueError as error:
        raise UsageError(f"the command {' '.join(map(str, texts))!r} cannot be read: {error}") from None


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
    given = str(server.settings.get("model") or argument(words_of(server), "-m", "--model"))
    if not given or server.kind == URL:
        return None
    path = Path(given).expanduser()
    return path if path.exists() else None


def model_name(server: PlannedServer) -> str:
    """The name of a file or folder, else what was given: meta-llama/Llama-2-7b-chat-hf."""
    given = str(server.settings.get("model") or argument(words_of(server), "-m", "--model"))
    if not given:
        return "small random model" if server.start is not None and server.start.makes_model else ""
    return Path(given).name if given.endswith(".gguf") or Path(given).exists() else given


def uses_rpc(server: PlannedServer) -> bool:
    """Whether it computes on RPC workers."""
    return bool(server.settings.get("rpc") or server.settings.get("rpc-workers"))


def gpu_count(server: PlannedServer) -> str:
    """The number of devices that CUDA_VISIBLE_DEVICES names; empty if it is not set."""
    devices = str(server.settings.get("env", {}).get("CUDA_VISIBLE_DEVICES", ""))
    return str(len([part for part in devices.split(",") if part.strip()])) if devices else ""


def argument(words: Sequence[str], *flags: str) -> str:
    """The value of a flag on a command line, the last one given: `-t 8` or `--threads=8`; empty without it."""
    value = ""
    for word, following in zip(words, [*words[1:], ""], strict=False):
        name, is_joined, joined = word.partition("=")
        if name in flags:
            value = joined if is_joined else following
    return value
