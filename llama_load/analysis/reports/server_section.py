"""What the servers are made of, as lines of the block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from llama_load.analysis.reports.layout import TEXT_WIDTH, headline
from llama_load.ground.units import quantity
from llama_load.run_folder.observed.server_description import (
    Buffers,
    DraftModel,
    RpcWorker,
    ServerDescription,
)
from llama_load.run_folder.observed.slot_context import slot_context_of
from llama_load.tables import Row, Table, columns, figure, text_lines
from llama_load.tables.numbers import parameters, size
from llama_load.tables.text_width import wrapped

NAME_WIDTH = 16
LEAST_SAVES_MS = 10.0  # less is not shown


def server_lines(servers: Sequence[ServerDescription]) -> Iterable[str]:
    """A section per server that more is known of than its name."""
    for server in servers:
        if rows := server_rows(server):
            title = "Server" if len(servers) == 1 else f"Server {server.url}"
            yield headline(title, "-")
            for name, text in rows:
                label = f"{name}:".ljust(NAME_WIDTH + 1)
                yield from wrapped(text, TEXT_WIDTH, label)

            yield from buffer_lines(server)

        if server.ended:
            reason = server.ended.partition("\n")[0]
            yield from wrapped(f"It ended: {reason}", TEXT_WIDTH, indent="  ")
            for line in server.ended.splitlines()[1:]:
                yield f"  {line}"


def server_rows(server: ServerDescription) -> list[tuple[str, str]]:
    """Names and texts of what is known; [] if it is nothing."""
    start = ""
    if server.start_s is not None:
        start = f"ready after {server.start_s:.2f} s"

    rows = [
        ("Model", _model(server)),
        ("Draft model", _draft(server)),
        ("Layers", _layers(server)),
        ("Threads", _threads(server)),
        ("Batch", _batch(server)),
        ("Context", _context(server)),
        ("Images", _images(server)),
        ("Evictions", _evictions(server)),
        ("Sleeps", _wakes(server)),
        ("Prompt cache", _prompt_saves(server)),
        ("KV cache", _joined(server.kv_types, _flash(server))),
        ("RPC workers", "; ".join(map(worker_text, server.rpc))),
        ("Process", _process(server)),
        ("Start", start),
        ("Note", server.note or ""),
    ]

    return [(name, text) for name, text in rows if text]


def buffer_lines(server: ServerDescription) -> list[str]:
    """A table of what is allocated on each device, from the log."""
    if not server.buffers:
        return []

    rows = [_buffer_row(buffer.device, buffer) for buffer in server.buffers]
    if server.draft:
        for buffer in server.draft.buffers:
            rows.append(_buffer_row(f"{buffer.device}, draft", buffer))

    return text_lines(
        Table("", columns("Buffers (MiB)", "model", "KV", "compute", "sum"), rows)
    )


def _buffer_row(name: str, buffer: Buffers) -> Row:
    return [
        name,
        figure(buffer.model_mib, 1),
        figure(buffer.kv_mib, 1),
        figure(buffer.compute_mib, 1),
        figure(buffer.total_mib, 1),
    ]


def worker_text(worker: RpcWorker) -> str:
    """What an RPC worker holds, and its network.

    `127.0.0.1:50052 holds 8.0 MiB of the model (round trip 0.05 ms; 12.1 MB sent to it, 3.4 MB
    received)`.
    """
    if worker.model_mib is None:
        holds = "use unknown (not in the log)"
    elif worker.model_mib == 0:
        holds = "NOT USED: it holds no part of the model"
    else:
        holds = f"holds {worker.model_mib:.1f} MiB of the model"

    network = []
    if worker.rtt_ms is not None:
        network.append(f"round trip {worker.rtt_ms:.3g} ms")
    if worker.sent_bytes is not None and worker.received_bytes is not None:
        sent = f"{worker.sent_bytes / 1e6:.1f} MB sent to it"
        network.append(f"{sent}, {worker.received_bytes / 1e6:.1f} MB received")
    if not network:
        return f"{worker.address} {holds}"

    return f"{worker.address} {holds} ({'; '.join(network)})"


def _model(server: ServerDescription) -> str:
    facts = _size_and_quantization(server)
    if not facts:
        return ""
    return f"{server.model or 'unnamed'}: {facts}"


def _draft(server: ServerDescription) -> str:
    draft = server.draft
    if draft is None:
        return ""
    layers = quantity(draft.layers, "layer") if draft.layers else ""
    return _joined(_size_and_quantization(draft), layers)


def _size_and_quantization(model: ServerDescription | DraftModel) -> str:
    weights = size(model.model_bytes) if model.model_bytes else ""
    number = f"{parameters(model.n_params)} parameters" if model.n_params else ""
    return _joined(weights, number, model.quantization)


def _layers(server: ServerDescription) -> str:
    where = ""
    if server.devices:
        where = f"model on {', '.join(server.devices)}"

    done = ""
    if server.layers_offloaded is not None:
        done = f"{server.layers_offloaded} of {server.layers} offloaded"

    asked = ""
    if server.n_gpu_layers is not None:
        asked = f"-ngl {server.n_gpu_layers}"

    return _joined(where, done, asked)


def _threads(server: ServerDescription) -> str:
    if server.threads is None:
        return ""
    batch = server.threads_batch
    if batch is None or batch == server.threads:
        return str(server.threads)
    return f"{server.threads}, {batch} for batches"


def _batch(server: ServerDescription) -> str:
    if server.batch is None:
        return ""
    if server.micro_batch is None:
        return str(server.batch)
    return f"{server.batch}, micro-batch {server.micro_batch}"


def _context(server: ServerDescription) -> str:
    if server.context is None and server.context_per_slot is None:
        return ""

    whole = f"{server.context} tokens" if server.context else ""
    shifts = ""
    if server.context_shifts:
        times = quantity(server.context_shifts, "time")
        shifts = f"shifted {times} (the oldest tokens were dropped)"

    return _joined(whole, _slots(server), shifts)


def _slots(server: ServerDescription) -> str:
    """How many slots there are, and how much of the context is theirs."""
    has_several = server.slots not in (None, 1)
    shares = has_several and slot_context_of(server).is_shared
    slots = ""
    if has_several:
        slots = f"{server.slots} slots"
    elif server.slots:
        slots = "1 slot"

    if shares:
        return f"{slots} which share them".strip()
    if slots and server.context_per_slot:
        return f"{slots} of {server.context_per_slot} tokens"

    return slots


def _images(server: ServerDescription) -> str:
    """Images of fewer tokens than asked for are prefilled faster, and seen less sharply."""
    if server.image_tokens_cap is None:
        return ""

    asked = server.image_tokens_asked or 0
    instead = f"instead of the {asked} of --image-max-tokens, " if asked > 0 else ""

    return (
        f"capped at {server.image_tokens_cap} tokens each, {instead}by the micro-batch: "
        "give a larger -ub to see them whole"
    )


def _evictions(server: ServerDescription) -> str:
    """A model that is loaded again costs the next request its load."""
    if not server.evictions:
        return ""
    times = quantity(server.evictions, "time")
    return f"{times} since its start a model was unloaded to make room for another (--models-max)"


def _wakes(server: ServerDescription) -> str:
    """A server that sleeps has unloaded its model: the request that wakes it waits for the load."""
    if not server.wakes:
        return ""
    times = quantity(server.wakes, "time")
    return f"{times} it woke during the run and loaded its model again (--sleep-idle-seconds)"


def _prompt_saves(server: ServerDescription) -> str:
    """A new request waits while prompts are copied from slots, from a GPU's memory too."""
    if server.prompt_saves_ms < LEAST_SAVES_MS:
        return ""
    seconds = server.prompt_saves_ms / 1000
    return (
        f"for {seconds:.2f} s it copied prompts from slots to its cache in memory, while requests "
        "waited (--cache-ram 0 ends that)"
    )


def _flash(server: ServerDescription) -> str:
    if not server.flash_attention:
        return ""
    words = {"enabled": "on", "1": "on", "disabled": "off", "0": "off"}
    return (
        f"flash attention {words.get(server.flash_attention, server.flash_attention)}"
    )


def _process(server: ServerDescription) -> str:
    ours = "started by llama-load serve" if server.is_ours else ""
    threads = (
        quantity(server.process_threads, "thread") if server.process_threads else ""
    )
    memory = f"{server.rss_mib:.0f} MiB resident" if server.rss_mib else ""
    return _joined(ours, threads, memory)


def _joined(*facts: str | None) -> str:
    """What is known of these, with commas."""
    return ", ".join(filter(None, facts))
