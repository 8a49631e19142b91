"""What master and workers say to each other, as Locust's custom messages. One type of message a kind; bodies are JSON or Arrow
in bytes, because Locust's msgpack knows no dataclasses. All but hello and refuse name their run, so that a late one disturbs no
later run.

    hello    worker -> master   this worker listens now. (Locust connects it before locustfiles can register for messages.)
    run      master -> worker   orders: targets, flags, who may measure what
    refuse   worker -> master   a sentence why this worker cannot take part
    abort    worker -> master   a sentence why the run makes no sense
    want     worker -> master   a workload and how many leases
    leases   master -> worker   leases with their prompts
    back     worker -> master   leases that were not used
    begun    worker -> master   requests that are being sent
    records  worker -> master   a numbered batch of records
    ack      master -> worker   that batch is on the master's disk
    ping     master -> worker   the master's clock, and the number of messages with leases so far
    pong     worker -> master   the worker's clock, with what was asked; which leases it holds and how many more it wants
    end      master -> worker   begin nothing more, cut what is in flight, send everything
    flushed  worker -> master   everything has been sent; how busy this worker was
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from llama_load.metrics.verdict import WorkerHealth
from llama_load.swarm.coordinator import Lease
from llama_load.targets.body import BodyOptions
from llama_load.targets.target import Target

HELLO, RUN, REFUSE, ABORT, WANT = (f"llama_load_{kind}" for kind in ("hello", "run", "refuse", "abort", "want"))
LEASES, BACK, BEGUN = (f"llama_load_{kind}" for kind in ("leases", "back", "begun"))
RECORDS, ACK, PING, PONG, END, FLUSHED = (f"llama_load_{kind}" for kind in ("records", "ack", "ping", "pong", "end", "flushed"))
TO_MASTER = (HELLO, REFUSE, ABORT, WANT, BACK, BEGUN, RECORDS, PONG, FLUSHED)
TO_WORKER = (RUN, LEASES, ACK, PING, END)


@dataclass(frozen=True, slots=True)
class RunOrders:
    """What the master sends before Locust starts the users. (The flags come with Locust's own message.)"""

    version: str
    run: str  # names the run in every message of it
    targets: list[Target]
    body_options: BodyOptions
    nonce: str | None


@dataclass(frozen=True, slots=True)
class Flushed:
    """A worker's last word: how many batches it has sent, and how it was."""

    batches: int
    health: WorkerHealth


def pack(value: Any) -> bytes:
    """Any of the dataclasses here, or lists of them, as bytes."""
    return msgspec.json.encode(value)


def unpack_orders(data: bytes) -> RunOrders:
    """The inverse of `pack`."""
    return msgspec.json.decode(data, type=RunOrders)


def unpack_leases(data: bytes) -> list[Lease]:
    """The inverse of `pack`."""
    return msgspec.json.decode(data, type=list[Lease])


def unpack_flushed(data: bytes) -> Flushed:
    """The inverse of `pack`."""
    return msgspec.json.decode(data, type=Flushed)
