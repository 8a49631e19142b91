"""The messages between master and workers: Locust's custom messages. Bodies are msgpack or Arrow in bytes, because Locust cannot
pack dataclasses. All but hello and refuse name their run, so that a late message does not affect a later run.

    hello    worker -> master   this worker listens now (Locust connects it before locustfiles can register for messages), and
                                which process it is
    run      master -> worker   the fingerprint of these messages, and the run's configuration: what a sender needs, user classes
    refuse   worker -> master   a sentence why this worker cannot take part
    abort    worker -> master   a sentence why the run cannot work
    want     worker -> master   request leases of a workload; which requests have ended, and which are being sent
    leases   master -> worker   leases with their prompts
    back     worker -> master   unused leases
    started  worker -> master   requests that are being sent: at once, in a large swarm with the next `want` or within 0.1 s
    ended    worker -> master   requests that have ended, and whether the connection failed (their records come in a batch)
    records  worker -> master   a numbered batch of records, on a connection of its own (see `llama_load.swarm.sockets`)
    ack      master -> worker   these batches are on the master's disk
    ping     master -> worker   the master's clock, and the number of lease messages so far
    pong     worker -> master   the worker's clock and the ping's; which leases it holds, and how many more it needs
    end      master -> worker   begin no more requests, cancel those in flight, send all records
    flushed  worker -> master   all records have been sent; the worker's health
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, NotRequired, TypedDict

import msgspec
from msgspec import Meta

from llama_load.observed.foreign_records import MOST_INTEGER
from llama_load.observed.record import RequestRecord
from llama_load.observed.worker_health import WorkerHealth
from llama_load.run.sender import SenderConfig
from llama_load.swarm.lease_packing import PackedLease

HELLO, RUN, REFUSE, ABORT, WANT = (f"llama_load_{kind}" for kind in ("hello", "run", "refuse", "abort", "want"))
LEASES, BACK, STARTED, REQUESTS_ENDED = (f"llama_load_{kind}" for kind in ("leases", "back", "started", "ended"))
RECORDS, ACK, PING, PONG, END, FLUSHED = (f"llama_load_{kind}" for kind in ("records", "ack", "ping", "pong", "end", "flushed"))
TO_WORKER = (RUN, LEASES, ACK, PING, END)

MOST_CHARACTERS = 4096
Text = Annotated[str, Meta(max_length=MOST_CHARACTERS)]
Count = Annotated[int, Meta(ge=0, le=10**9)]
# Half of `foreign_records.MOST_SHIFTED`: an instant of a record stays within 64 bits when it is shifted by the offset of a clock.
Instant = Annotated[int, Meta(ge=-(2**60), le=2**60)]
Keys = list[tuple[bool, int]]
Ends = list[tuple[bool, int, bool]]


class Hello(TypedDict):
    """See `presence.introduction`."""

    pid: int
    machine: str | None


class Sentence(TypedDict):
    """Refuse and abort. (A worker refuses before it knows the run.)"""

    run: NotRequired[Text]
    sentence: Text


class LeaseKeys(TypedDict):
    """Back and started."""

    run: Text
    keys: Keys


class RequestsEnded(TypedDict):
    """Keys of requests that have ended, and whether their connections failed."""

    run: Text
    ended: Ends


class Want(TypedDict):
    """Users that wait for a lease."""

    run: Text
    ended: Ends
    started: Keys
    workload: Text
    count: Count


class Records(TypedDict):
    """A batch, as `unpack_batch` makes it."""

    run: Text
    number: Annotated[int, Meta(ge=1, le=10**9)]
    batch: bytes


class Pong(TypedDict):
    """The state of a worker's leases is not there before it has users, nor after its end."""

    run: Text
    asked_ns: Instant
    worker_ns: Instant
    delivered: NotRequired[Count]
    holds: NotRequired[Keys]
    wants: NotRequired[dict[Text, Count]]


class LastWord(TypedDict):
    """`Flushed`, packed."""

    run: Text
    last_word: bytes


# What workers send: the body of each message is checked before it is used.
TO_MASTER: dict[str, Any] = {
    HELLO: Hello,
    REFUSE: Sentence,
    ABORT: Sentence,
    WANT: Want,
    BACK: LeaseKeys,
    STARTED: LeaseKeys,
    REQUESTS_ENDED: RequestsEnded,
    RECORDS: Records,
    PONG: Pong,
    FLUSHED: LastWord,
}


@dataclass(frozen=True, slots=True)
class RunConfig:
    """The configuration of a run, sent before Locust starts the users. (A worker reads only keys and the CA file from flags.)

    It contains no keys: `key_headers` are the lower-case names of the headers that each worker must add."""

    run: str  # names the run in every message of it
    sender: SenderConfig
    ends_matter: bool  # requests may wait for the end of others: report ends at once
    user_classes: list[str]  # names of the classes that the master may start on a worker
    key_headers: list[str]


@dataclass(frozen=True, slots=True)
class Flushed:
    """A worker's last message: how many batches it has sent, and its health."""

    batches: int
    health: WorkerHealth


def pack(value: Any) -> bytes:
    """A dataclass of this module as msgpack."""
    return msgspec.msgpack.encode(value)


def unpack_config(data: bytes) -> RunConfig:
    """The inverse of `pack`."""
    return msgspec.msgpack.decode(data, type=RunConfig)


def unpack_flushed(data: bytes) -> Flushed:
    """The inverse of `pack`. Raises ValueError, also for numbers that no figure can be made of."""
    flushed = msgspec.msgpack.decode(data, type=Flushed)
    _check_numbers(msgspec.to_builtins(flushed))
    return flushed


def _check_numbers(value: Any) -> None:
    """Raises ValueError for a number in it that is not finite, or larger than any count or instant."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number that is not finite")
    if isinstance(value, int) and abs(value) > MOST_INTEGER:
        raise ValueError("a number beyond all counts and instants")
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if isinstance(value, list | tuple):
        for item in value:
            _check_numbers(item)


_HEADER = struct.Struct(">I16s")  # number of the batch, run


def pack_header(number: int, run: str) -> bytes:
    """The first frame of a batch of records; a run's name is 16 hex digits."""
    return _HEADER.pack(number, run.encode())


def unpack_batch(frames: Sequence[bytes]) -> dict[str, Any]:
    """The body of a message `Records`. Raises ValueError."""
    if len(frames) < 2 or len(frames[0]) != _HEADER.size:
        raise ValueError("a batch of records without a header")
    number, run = _HEADER.unpack(frames[0])
    return {"number": number, "run": run.decode(), "batch": frames[1] if len(frames) == 2 else b"".join(frames[1:])}


@cache
def fingerprint() -> str:
    """A digest of all types in the messages: master and worker of one version may still differ, if one was changed by hand."""
    bodies = [*TO_MASTER.values(), RunConfig, Flushed, PackedLease, RequestRecord]
    schemas = msgspec.json.schema_components(bodies, schema_hook=lambda kind: {"title": kind.__name__})
    return hashlib.sha256(msgspec.json.encode(schemas, order="sorted")).hexdigest()[:16]


def short_name(client_id: str) -> str:
    """Locust's name of a worker (host_32 hex digits), shortened for people: host_8 digits."""
    host, _, digits = client_id.rpartition("_")
    return f"{host}_{digits[:8]}"
