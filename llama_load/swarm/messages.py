"""The messages between master and workers: Locust's custom messages. Bodies are msgpack or Arrow in bytes, because Locust cannot
pack dataclasses. All but hello and refuse name their run, so that a late message does not affect a later run.

    hello    worker -> master   this worker listens now (Locust connects it before locustfiles can register for messages), and
                                which process it is
    run      master -> worker   the run's configuration: targets, body options, user classes
    refuse   worker -> master   a sentence why this worker cannot take part
    abort    worker -> master   a sentence why the run cannot work
    want     worker -> master   request leases of a workload; which requests have ended
    leases   master -> worker   leases with their prompts
    back     worker -> master   unused leases
    started  worker -> master   requests that are being sent, at once
    over     worker -> master   requests that have ended, and whether the connection failed (their records come in a batch)
    records  worker -> master   a numbered batch of records
    ack      master -> worker   that batch is on the master's disk
    ping     master -> worker   the master's clock, and the number of lease messages so far
    pong     worker -> master   the worker's clock and the ping's; which leases it holds, and how many more it needs
    end      master -> worker   begin no more requests, cancel those in flight, send all records
    flushed  worker -> master   all records have been sent; the worker's health
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


# Packing 5 MB blocks the event loop for 10 ms.
MOST_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class RunConfig:
    """The configuration of a run, sent before Locust starts the users. (The flags come with Locust's own message.)

    Neither contains keys: `key_headers` are the lower-case names of the headers that each worker must add."""

    version: str
    run: str  # names the run in every message of it
    targets: list[Target]
    body_options: BodyOptions
    nonce: str | None
    ends_matter: bool  # requests may wait for the end of others: report ends at once
    user_classes: list[str]  # names of the classes that the master may start on a worker
    key_headers: list[str]


@dataclass(frozen=True, slots=True)
class Flushed:
    """A worker's last message: how many batches it has sent, and its health."""

    batches: int
    health: WorkerHealth


def pack(value: Any) -> bytes:
    """A dataclass of this module, or a list of them, as msgpack."""
    return msgspec.msgpack.encode(value)


def in_parts(leases: Sequence[Lease]) -> Iterator[list[Lease]]:
    """The leases in messages of about `MOST_BYTES`. The turns of a conversation stay together."""
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
    """Locust's name of a worker (host_32 hex digits), shortened for people: host_8 digits."""
    host, _, digits = client_id.rpartition("_")
    return f"{host}_{digits[:8]}"
