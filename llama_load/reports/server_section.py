"""What the servers are made of, as lines of the block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from llama_load.observed.server_description import DraftModel, RpcWorker, ServerDescription
from llama_load.observed.slot_context import slot_context_of
from llama_load.reports.layout import TEXT_WIDTH, headline
from llama_load.tables import Row, Table, columns, figure, text_lines
from llama_load.tables.numbers import parameters, size
from llama_load.tables.text_width import wrapped
from llama_load.units import quantity

NAME_WIDTH = 16
NEWLINE = "\n"


def server_lines(servers: Sequence[ServerDescription]) -> Iterable[str]:
    """A section per server that more is known of than its name."""
    for server in servers:
        if rows := server_rows(server):
            yield headline("Server" if len(servers) == 1 else f"Server {server.url}", "-")
            for name, text in rows:
                indent = " " * (NAME_WIDTH + 1)
                yield from wrapped(text, TEXT_WIDTH, f"{name + ':':<{NAME_WIDTH}} ", indent)
            yield from buffer_lines(server)
        if server.ended:
            yield from wrapped(f"It ended: {server.ended.partition(NEWLINE)[0]}", TEXT_WIDTH, indent="  ")
            yield from (f"  {line}" for line in server.ended.splitlines()[1:])


def server_rows(server: ServerDescription) -> list[tuple[str, str]]:
    """Names and texts of what is known; [] if it is nothing."""
    rows = [
        ("Model", _model(server)),
        ("Draft model", _draft(server)),
        ("Layers", _layers(server)),
        ("Threads", _threads(server)),
        ("Batch", _batch(server)),
        ("Context", _context(server)),
        ("Images", _images(server)),
        ("Evictions", _evictions(server)),
        ("KV cache", _joined(server.kv_types, _flash(server))),
        ("RPC workers", "; ".join(map(worker_text, server.rpc))),
        ("Process", _process(server)),
        ("Start", f"ready after {server.start_s:.2f} s" if server.start_s is not None else ""),
        ("Note", server.note or ""),
    ]
    return [(name, text) for name, text in rows if text]


def buffer_lines(server: ServerDescription) -> list[str]:
    """A table of what is allocated on each device, from the log."""
    if not server.buffers:
        return []
    named = [(buffer.device, buffer) for buffer in server.buffers]
    named += [(f"{buffer.device}, draft", buffer) for buffer in (server.draft.buffers if server.draft else ())]
    rows: list[Row] = [
        [name, *(figure(size, 1) for size in (buffer.model_mib, buffer.kv_mib, buffer.compute_mib, buffer.total_mib))]
        for name, buffer in named
    ]
    return text_lines(Table("", columns("Buffers (MiB)", "model", "KV", "compute", "sum"), rows))


def worker_text(worker: RpcWorker) -> str:
    """`127.0.0.1:50052 holds 8.0 MiB of the model (round trip 0.05 ms; 12.1 MB sent, 3.4 MB received)`."""
    if worker.model_mib is None:
        holds = "use unknown (not in the log)"
    elif worker.model_mib == 0:
        holds = "NOT USED: it holds no part of the model"
    else:
        holds = f"holds {worker.model_mib:.1f} MiB of the model"
    more = [f"round trip {worker.rtt_ms:.3g} ms"] if worker.rtt_ms is not None else []
    if worker.sent_bytes is not None and worker.received_bytes is not None:
        more.append(f"{worker.sent_bytes / 1e6:.1f} MB sent to it, {worker.received_bytes / 1e6:.1f} MB received")
    return f"{worker.address} {holds}" + (f" ({'; '.join(more)})" if more else "")


def _model(server: ServerDescription) -> str:
    facts = _model_facts(server)
    return f"{server.model or 'unnamed'}: {facts}" if facts else ""


def _draft(server: ServerDescription) -> str:
    if (draft := server.draft) is None:
        return ""
    return _joined(_model_facts(draft), quantity(draft.layers, "layer") if draft.layers else "")


def _model_facts(model: ServerDescription | DraftModel) -> str:
    return _joined(
        size(model.model_bytes) if model.model_bytes else "",
        f"{parameters(model.n_params)} parameters" if model.n_params else "",
        model.quantization,
    )


def _layers(server: ServerDescription) -> str:
    asked = f"-ngl {server.n_gpu_layers}" if server.n_gpu_layers is not None else ""
    done = f"{server.layers_offloaded} of {server.layers} offloaded" if server.layers_offloaded is not None else ""
    where = f"model on {', '.join(server.devices)}" if server.devices else ""
    return _joined(where, done, asked)


def _threads(server: ServerDescription) -> str:
    if server.threads is None:
        return ""
    batch = server.threads_batch
    return f"{server.threads}" + (f", {batch} for batches" if batch not in (None, server.threads) else "")


def _batch(server: ServerDescription) -> str:
    if server.batch is None:
        return ""
    return f"{server.batch}" + (f", micro-batch {server.micro_batch}" if server.micro_batch is not None else "")


def _context(server: ServerDescription) -> str:
    if server.context is None and server.context_per_slot is None:
        return ""
    slots = f"{server.slots} slots" if server.slots not in (None, 1) else "1 slot" if server.slots else ""
    own = slot_context_of(server)
    size = f"of {server.context_per_slot} tokens" if server.context_per_slot and slots else ""
    whole = f"{server.context} tokens" if server.context else ""
    pool = "which share them" if own.is_shared and server.slots not in (None, 1) else ""
    shifts = f"shifted {quantity(server.context_shifts, 'time')} (the oldest tokens were dropped)" if server.context_shifts else ""
    return _joined(whole, f"{slots} {pool or size}".strip(), shifts)


def _images(server: ServerDescription) -> str:
    """Images of fewer tokens than asked for are prefilled faster, and seen less sharply."""
    if server.image_tokens_cap is None:
        return ""
    asked = server.image_tokens_asked or 0
    instead = f"instead of the {asked} of --image-max-tokens, " if asked > 0 else ""
    return f"capped at {server.image_tokens_cap} tokens each, {instead}by the micro-batch: give a larger -ub to see them whole"


def _evictions(server: ServerDescription) -> str:
    """A model that is loaded again costs the next request its load."""
    times = quantity(server.evictions, "time")
    return f"{times} since its start a model was unloaded to make room for another (--models-max)" if server.evictions else ""


def _flash(server: ServerDescription) -> str:
    known = {"enabled": "on", "1": "on", "disabled": "off", "0": "off"}
    return f"flash attention {known.get(server.flash_attention, server.flash_attention)}" if server.flash_attention else ""


def _process(server: ServerDescription) -> str:
    return _joined(
        "started by llama-load serve" if server.is_ours else "",
        quantity(server.process_threads, "thread") if server.process_threads else "",
        f"{server.rss_mib:.0f} MiB resident" if server.rss_mib else "",
    )


def _joined(*facts: str | None) -> str:
    """What is known of these, with commas."""
    return ", ".join(filter(None, facts))
