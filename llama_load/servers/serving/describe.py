"""Puts together what is known of a server: its log, its API, its command line, its process."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from llama_load.outside.foreign_text import printable
from llama_load.run_folder.observed.server_description import (
    DraftModel,
    RpcWorker,
    ServerDescription,
)
from llama_load.servers.kinds import KINDS
from llama_load.servers.kinds.llama_cpp_log import ModelLog, ServerLog, read_log
from llama_load.servers.serving.command_flags import read_command
from llama_load.servers.serving.last_words import ends_of

# A log does not tell its kind.
LOG_FACTS = [fact for kind in KINDS.values() for fact in kind.log_facts]
# The breakdown at a server's exit is among its last lines.
TAIL_CHARS = 32 * 2**10
# What the API says of these is better than the log and the command line.
_API_FIRST = ("build", "model", "model_bytes", "n_params", "slots", "context_per_slot")
# CUDA0 -> CUDA; CPU_Mapped, CPU_REPACK -> CPU; RPC0[host:port] -> RPC
_AFTER_KIND = re.compile(r"(?:_|\[|\d).*")
# What the API says if it does not know.
_UNKNOWN = (None, "b0-unknown")
_RPC_DEVICE = re.compile(r"RPC\d*(?:\[|\s\()([^\])]{1,200})[\])]")


def read_log_file(path: Path) -> ServerLog:
    """What the beginning and the end of a log say. An unreadable log says nothing."""
    head, tail = ends_of(path)
    return read_log(
        chain(head.splitlines(), tail[-TAIL_CHARS:].splitlines()), LOG_FACTS
    )


def described(
    base: ServerDescription,
    command: tuple[str, ...],
    log: ServerLog | None,
    asked_rpc: tuple[str, ...] = (),
) -> ServerDescription:
    """`base`, which holds what the API says, with what command line and log add.

    Where they differ the log counts: it tells what the server did, the command line what it was
    to do.
    """
    log = log or ServerLog()
    own = log.models.get(base.model or "", log)
    flags = read_command(command)
    facts: dict[str, Any] = {"build": None} | flags | own.facts | _facts_of_api(base)
    own_layers = facts.pop("own_layers", None)

    devices = _devices(own)
    # a build without GPU support prints "offloaded 3/3 layers to GPU", too
    if devices == ["CPU"] and "layers_offloaded" in facts:
        facts["layers_offloaded"] = 0

    facts |= {
        "layers": facts.get("layers") or own_layers,
        "devices": devices,
        "context_shift": flags["context_shift"] or own.context_shifts > 0,
        "context_shifts": own.context_shifts,
        "evictions": log.evictions,
        "wakes": own.wakes,
        "prompt_saves_ms": own.prompt_saves_ms,
        "buffers": list(own.buffers.values()),
        "draft": None if own.draft is None else _draft_model(own.draft),
        "memory_lines": own.memory_table,
        "memory_is_forecast": own.memory_is_forecast,
        "fit_lines": own.fit_lines,
        "rpc": _rpc_workers([*asked_rpc, *flags["rpc"]], own),
        "command": printable(shlex.join(command), 4000) if command else None,
    }
    return replace(base, **facts)


def _facts_of_api(base: ServerDescription) -> dict[str, Any]:
    facts = {}
    for name in _API_FIRST:
        value = getattr(base, name)
        if value not in _UNKNOWN:
            facts[name] = value
    return facts


def _devices(log: ModelLog) -> list[str]:
    """The kinds of devices that hold parts of the model, each once: CUDA, CPU."""
    devices = []
    for buffers in log.buffers.values():
        device = _AFTER_KIND.sub("", buffers.device)
        if buffers.model_mib and device not in devices:
            devices.append(device)
    return devices


def _draft_model(draft: ModelLog) -> DraftModel:
    facts = draft.facts
    return DraftModel(
        model_bytes=facts.get("model_bytes"),
        n_params=facts.get("n_params"),
        quantization=facts.get("quantization"),
        layers=facts.get("own_layers"),
        buffers=list(draft.buffers.values()),
    )


def _rpc_workers(asked: Sequence[str], log: ServerLog) -> list[RpcWorker]:
    """The workers of the command line and those in the log, each with its part of the model.

    llama.cpp takes `a:1;b:2` for one address: it uses a:1 and names the device after both.
    """
    held_mib: dict[str, float] = {}
    is_known = False
    for buffers in log.buffers.values():
        if buffers.model_mib:
            is_known = True
        match = _RPC_DEVICE.fullmatch(buffers.device)
        if match:
            address = match[1].partition(";")[0]
            held_mib[address] = held_mib.get(address, 0.0) + buffers.model_mib

    addresses = [*asked, *held_mib]
    for seen in log.rpc_seen:
        addresses += seen.split(";")

    workers = []
    for address in dict.fromkeys(addresses):
        model_mib = round(held_mib.get(address, 0.0), 2) if is_known else None
        workers.append(RpcWorker(address=address, model_mib=model_mib))
    return workers
