"""What master and workers say to each other, as Locust's custom messages. One type of message a kind; bodies are msgpack or Arrow
in bytes, because Locust's own packing knows no dataclasses. All but hello and refuse name their run, so that a late one
disturbs no later run.

    hello    worker -> master   this worker listens now (Locust connects it before locustfiles can register for messages), and
                                which process it is
    run      master -> worker   the run's configuration: targets, flags, who may measure what
    refuse   worker -> master   a sentence why this worker cannot take part
    abort    worker -> master   a sentence why the run makes no sense
    want     worker -> master   a workload and how many leases; which requests have ended
    leases   master -> worker   leases with their prompts
    back     worker -> master   leases that were not used
    started  worker -> master   requests that are being sent, at once
    over     worker -> master   requests have ended, and whether their servers refused them (records come in a batch)
    records  worker -> master   a numbered batch of records
    ack      master -> worker   that batch is on the master's disk
    ping     master -> worker   the master's clock, and the number of messages with leases so far
    pong     worker -> master   the worker's clock, with what was asked; which leases it holds and how many more it wants
    end      master -> worker   begin nothing more, cut what is in flight, send everything
    flushed  worker -> master   everything has been sent; how busy this worker was
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from llama_load.dispatch.leases import Lease
from llama_load.metrics.evidence import WorkerHealth
from llama_load.targets.body import BodyOptions
from llama_load.targets.target import Target

HELLO, RUN, REFUSE, ABORT, WANT = (f"llama_load_{kind}" for kind in ("hello", "run", "refuse", "abort", "want"))
LEASES, BACK, STARTED, OVER = (f"llama_load_{kind}" for kind in ("leases", "back", "started", "over"))
RECORDS, ACK, PING, PONG, END, FLUSHED = (f"llama_load_{kind}" for kind in ("records", "ack", "ping", "pong", "end", "flushed"))
TO_MASTER = (HELLO, REFUSE, ABORT, WANT, BACK, STARTED, OVER, RECORDS, PONG, FLUSHED)
TO_WORKER = (RUN, LEASES, ACK, PING, END)


# Packing 5 MB takes 10 ms, in which nobody else is heard.
MOST_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class RunConfig:
    """What the master sends before Locust starts the users. (The flags come with Locust's own message.) Keys are in neither:
    `key_headers` are the names, in lower case, of headers that each worker has to add."""

    version: str
    run: str  # names the run in every message of it
    targets: list[Target]
    body_options: BodyOptions
    nonce: str | None
    ends_matter: bool  # others may wait for the end of a request: say it at once
    user_classes: list[str]  # by their names: those that the master may ask a worker to start
    key_headers: list[str]


@dataclass(frozen=True, slots=True)
class Flushed:
    """A worker's last word: how many batches it has sent, and how it was."""

    batches: int
    health: WorkerHealth


def pack(value: Any) -> bytes:
    """Any of the dataclasses here, or lists of them, as bytes."""
    return msgspec.msgpack.encode(value)


def in_parts(leases: Sequence[Lease]) -> Iterator[list[Lease]]:
    """The leases of one delivery, some megabytes a message. (The turns of a conversation stay together.)"""
    part: list[Lease] = []
    size = 0
    for lease in leases:
        if size > MOST_BYTES and not lease.follows:
            yield part
            part, size = [], 0
        part.append(lease)
        if lease.prompt is not None:
            size += len(lease.prompt.text) + sum(len(image.data_url) for image in lease.prompt.images)
    yield part


def unpack_config(data: bytes) -> RunConfig:
    """The inverse of `pack`."""
    return msgspec.msgpack.decode(data, type=RunConfig)


def unpack_leases(data: bytes) -> list[Lease]:
    """The inverse of `pack`."""
    return msgspec.msgpack.decode(data, type=list[Lease])


def unpack_flushed(data: bytes) -> Flushed:
    """The inverse of `pack`."""
    return msgspec.msgpack.decode(data, type=Flushed)


def short_name(client_id: str) -> str:
    """Locust's name of a worker, host_32 hex digits, as people can read it: host_8."""
    host, _, digits = client_id.rpartition("_")
    return f"{host}_{digits[:8]}"
