"""Puts together what is known of a server: its log, its API, its command line, its process."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import replace
from itertools import chain
from pathlib import Path

from llama_load.foreign_text import printable
from llama_load.observed.server_description import Buffers, DraftModel, RpcWorker, ServerDescription
from llama_load.serving.command_flags import read_command
from llama_load.serving.log_facts import LogFacts, read_log

# A log begins with the load of the model, and ends with the last words; what is between them are requests.
END_BYTES = 512 * 2**10
# The breakdown at a server's exit is among its last lines.
TAIL_CHARS = 32 * 2**10


def read_log_file(path: Path) -> LogFacts:
    """The facts in a log's beginning and end. An unreadable log has none."""
    head, tail = ends_of(path)
    return read_log(chain(head.splitlines(), tail[-TAIL_CHARS:].splitlines()))


def ends_of(path: Path) -> tuple[str, str]:
    """The beginning and the end of a file, which do not overlap; both "" if it cannot be read."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            head = file.read(END_BYTES)
            file.seek(max(len(head), size - END_BYTES))
            return head.decode(errors="replace"), file.read(END_BYTES).decode(errors="replace")
    except OSError:
        return "", ""


def described(
    base: ServerDescription, command: tuple[str, ...], log: LogFacts | None, asked_rpc: tuple[str, ...] = ()
) -> ServerDescription:
    """`base`, which holds what the API says, with what command line and log add. The log is the better witness: it tells what the
    server did, not what it was to do."""
    log = log or LogFacts()
    evictions = log.evictions
    log = log.models.get(base.model or "", log)
    flags = read_command(command)
    devices = list(dict.fromkeys(_device_kind(device.name) for device in log.devices if device.model_mib))
    # A build without GPU support prints "offloaded 3/3 layers to GPU", too.
    offloaded = (None, None) if log.offloaded is None else (0 if devices == ["CPU"] else log.offloaded[0], log.offloaded[1])
    return replace(
        base,
        build=base.build if base.build not in (None, "b0-unknown") else log.build,
        model=base.model or log.model_name or flags.model,
        model_bytes=base.model_bytes or log.model_bytes,
        n_params=base.n_params or log.n_params,
        quantization=log.quantization or base.quantization,
        devices=devices,
        n_gpu_layers=flags.n_gpu_layers,
        layers_offloaded=offloaded[0],
        layers=offloaded[1] or log.n_layers,
        threads=log.threads or flags.threads,
        threads_batch=log.threads_batch or flags.threads_batch,
        batch=log.batch or flags.batch,
        micro_batch=log.micro_batch or flags.micro_batch,
        slots=base.slots or log.slots or flags.slots,
        context=log.context or flags.context,
        context_per_slot=base.context_per_slot or log.context_per_slot,
        kv_unified=log.kv_unified,
        image_tokens_asked=log.image_tokens[0] if log.image_tokens else None,
        image_tokens_cap=log.image_tokens[1] if log.image_tokens else None,
        context_shift=flags.context_shift or log.context_shifts > 0,
        context_shifts=log.context_shifts,
        evictions=evictions,
        kv_types=log.kv_types or flags.kv_types,
        flash_attention=log.flash_attention,
        buffers=_buffers(log),
        draft=None
        if log.draft is None
        else DraftModel(
            model_bytes=log.draft.model_bytes,
            n_params=log.draft.n_params,
            quantization=log.draft.quantization,
            layers=log.draft.n_layers,
            buffers=_buffers(log.draft),
        ),
        memory_lines=list(log.memory_table),
        memory_is_forecast=log.memory_is_forecast,
        fit_lines=list(log.fit),
        rpc=_rpc_workers(tuple(dict.fromkeys((*asked_rpc, *flags.rpc))), log),
        command=printable(shlex.join(command), 4000) if command else None,
    )


def _buffers(log: LogFacts) -> list[Buffers]:
    return [
        Buffers(device=each.name, model_mib=each.model_mib, kv_mib=each.kv_mib, compute_mib=each.compute_mib + each.output_mib)
        for each in log.devices
    ]


def _rpc_workers(asked: tuple[str, ...], log: LogFacts) -> list[RpcWorker]:
    """The workers of the command line and those in the log, each with its part of the model.

    llama.cpp takes `a:1;b:2` for one address: it uses a:1 and names the device after both.
    """
    holds: dict[str, float] = {}
    for device in log.devices:
        if address := device.rpc.partition(";")[0]:
            holds[address] = holds.get(address, 0.0) + device.model_mib
    is_known = any(device.model_mib for device in log.devices)
    return [
        RpcWorker(address=address, model_mib=round(holds.get(address, 0.0), 2) if is_known else None)
        for address in dict.fromkeys((*asked, *holds, *(address for seen in log.rpc_seen for address in seen.split(";"))))
    ]


def _device_kind(name: str) -> str:
    """CUDA0 -> CUDA; CPU_Mapped, CPU_REPACK -> CPU; RPC0[host:port] -> RPC."""
    return re.sub(r"(?:_|\[|\d).*", "", name)
