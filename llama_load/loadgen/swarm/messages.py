"""The messages between master and workers: Locust's custom messages. Dataclasses of ours and
records travel in them as bytes of msgpack and Arrow. All but hello and refuse name their run, so
that a late message does not affect a later run.

    hello    worker -> master   this worker listens now (Locust connects it before locustfiles can
                                register for messages), and which process it is
    run      master -> worker   the fingerprint of these messages, and the run's configuration: what
                                a sender needs, user classes
    refuse   worker -> master   a sentence why this worker cannot take part
    abort    worker -> master   a sentence why the run cannot work
    report   worker -> master   requests that are being sent, requests that have ended (their
                                records come in a batch), and how many leases its users wait for: at
                                once, or, as far as nobody waits for it, within 0.1 s
    leases   master -> worker   leases with their prompts
    back     worker -> master   unused leases
    records  worker -> master   a numbered batch of records, on a connection of its own (see
                                `llama_load.loadgen.swarm.sockets`)
    tokens   worker -> master   tokens of answers that go on, if the master draws them
    ack      master -> worker   these batches are on the master's disk
    ping     master -> worker   the master's clock, and the number of lease messages so far
    pong     worker -> master   the worker's clock and the ping's; which leases it holds, of
                                those which tasks hold open, and how many more it needs
    end      master -> worker   begin no more requests, cancel those in flight, send all records
    flushed  worker -> master   all records have been sent, except those of the named requests; the
                                worker's health
    heard    master -> worker   that message has come
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
import numpy as np
from msgspec import Meta

from llama_load.loadgen.run.sender import SenderConfig
from llama_load.loadgen.swarm.lease_packing import PackedLease
from llama_load.run_folder.observed.foreign_records import MOST_INTEGER
from llama_load.run_folder.observed.new_tokens import NewTokens
from llama_load.run_folder.observed.record import RequestRecord
from llama_load.run_folder.observed.worker_health import WorkerHealth

HELLO = "llama_load_hello"
RUN = "llama_load_run"
REFUSE = "llama_load_refuse"
ABORT = "llama_load_abort"
REPORT = "llama_load_report"
LEASES = "llama_load_leases"
BACK = "llama_load_back"
RECORDS = "llama_load_records"
TOKENS = "llama_load_tokens"
ACK = "llama_load_ack"
PING = "llama_load_ping"
PONG = "llama_load_pong"
END = "llama_load_end"
FLUSHED = "llama_load_flushed"
HEARD = "llama_load_heard"
TO_WORKER = (RUN, LEASES, ACK, PING, END, HEARD)

MOST_CHARACTERS = 4096
Text = Annotated[str, Meta(max_length=MOST_CHARACTERS)]
Count = Annotated[int, Meta(ge=0, le=10**9)]
# Half of `foreign_records.MOST_SHIFTED`: an instant of a record stays within 64 bits when it is
# shifted by the offset of a clock.
MOST_INSTANT = 2**60
Instant = Annotated[int, Meta(ge=-MOST_INSTANT, le=MOST_INSTANT)]
_INSTANT = np.dtype("<i8")
Keys = list[tuple[bool, int]]
Wants = dict[Text, Count]


class Hello(TypedDict):
    """See `presence.introduction`."""

    pid: int
    machine: str | None


class Sentence(TypedDict):
    """Refuse and abort. (A worker refuses before it knows the run.)"""

    run: NotRequired[Text]
    sentence: Text


class Report(TypedDict):
    """Keys of requests: of those that have begun with the number of the delivery that had the
    lease, of those that have ended with whether the connection failed; users that wait for a lease,
    by workload."""

    run: Text
    started: list[tuple[bool, int, Count]]
    ended: list[tuple[bool, int, bool]]
    wants: Wants


class Back(TypedDict):
    """Keys of leases."""

    run: Text
    keys: Keys


class Records(TypedDict):
    """A batch, as `unpack_batch` makes it."""

    run: Text
    number: Annotated[int, Meta(ge=1, le=10**9)]
    batch: bytes


class Tokens(TypedDict):
    """New tokens of answers that go on: see `pack_tokens`."""

    run: Text
    answers: list[tuple[Count, Count, Instant, bytes]]


class Pong(TypedDict):
    """The state of a worker's leases is not there before it has users, nor after its end."""

    run: Text
    asked_ns: Instant
    worker_ns: Instant
    delivered: NotRequired[Count]
    holds: NotRequired[Keys]
    held_open: NotRequired[Keys]
    wants: NotRequired[Wants]


class Flushed(TypedDict):
    """How many batches the worker has sent, the keys of requests that it has begun and that are in
    none of them, its health.

    Once it `gave_up`, batches that the master has not acknowledged will not be sent again."""

    run: Text
    batches: Count
    open: Keys
    gave_up: bool
    health: WorkerHealth


# What workers send: the body of each message is checked before it is used.
TO_MASTER: dict[str, Any] = {
    HELLO: Hello,
    REFUSE: Sentence,
    ABORT: Sentence,
    REPORT: Report,
    BACK: Back,
    RECORDS: Records,
    TOKENS: Tokens,
    PONG: Pong,
    FLUSHED: Flushed,
}


@dataclass(frozen=True, slots=True)
class RunConfig:
    """The configuration of a run, sent before Locust starts the users. (A worker reads only keys
    and the CA file from flags.)

    It contains no keys: `key_headers` are the lower-case names of the headers that each worker must
    add."""

    run: str  # names the run in every message of it
    sender: SenderConfig
    ends_matter: bool  # requests may wait for the end of others: report ends at once
    # how often the tokens of answers that go on are drawn, on the master's page or in its line of
    # progress; 0: never
    draws_every_s: float
    user_classes: list[
        str
    ]  # names of the classes that the master may start on a worker
    key_headers: list[str]
    wall_offset_ns: int  # the master's wall clock less its monotonic one


def unpack_health(health: Any) -> WorkerHealth:
    """The health in `Flushed`. Raises ValueError, also for numbers that no figure can be made
    of."""
    _check_numbers(health)
    return msgspec.convert(health, WorkerHealth)


def _check_numbers(value: Any) -> None:
    """Raises ValueError for a number in it that is not finite, or larger than any count or
    instant."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number that is not finite")
    if isinstance(value, int) and abs(value) > MOST_INTEGER:
        raise ValueError("a number beyond all counts and instants")
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if isinstance(value, list | tuple):
        for item in value:
            _check_numbers(item)


def pack_tokens(arrived: Sequence[NewTokens]) -> list[tuple[int, int, int, bytes]]:
    """The answers of a message `Tokens`: their instants as 64-bit integers."""
    answers = []
    for answer in arrived:
        instants = answer.token_ns.astype(_INSTANT).tobytes()
        answers.append((answer.number, answer.before, answer.started_ns, instants))

    return answers


def unpack_tokens(
    answers: Sequence[tuple[int, int, int, bytes]], offset_ns: int
) -> list[NewTokens]:
    """See `pack_tokens`, with the instants this much later. Raises ValueError."""
    arrived = []
    for number, before, started_ns, instants in answers:
        token_ns = np.frombuffer(instants, _INSTANT).astype(np.int64)
        if not len(token_ns) or before < 0 or abs(token_ns).max() > MOST_INSTANT:
            raise ValueError("tokens without instants, or with impossible ones")
        if bool(before) and len(token_ns) < 2:
            raise ValueError("tokens without a new one")

        new = NewTokens(number, before, started_ns + offset_ns, token_ns + offset_ns)
        arrived.append(new)

    return arrived


_HEADER = struct.Struct(">I16s")  # number of the batch, run


def pack_header(number: int, run: str) -> bytes:
    """The first frame of a batch of records; a run's name is 16 hex digits."""
    return _HEADER.pack(number, run.encode())


def unpack_batch(frames: Sequence[bytes]) -> dict[str, Any]:
    """The body of a message `Records`. Raises ValueError."""
    if len(frames) < 2 or len(frames[0]) != _HEADER.size:
        raise ValueError("a batch of records without a header")
    number, run = _HEADER.unpack(frames[0])
    return {
        "number": number,
        "run": run.decode(),
        "batch": frames[1] if len(frames) == 2 else b"".join(frames[1:]),
    }


@cache
def fingerprint() -> str:
    """A digest of all names and types in the messages: copies of one version may still differ, if
    one was changed by hand."""
    bodies = [*TO_MASTER.values(), RunConfig, PackedLease, RequestRecord]
    _, schemas = msgspec.json.schema_components(
        bodies, schema_hook=lambda kind: {"title": kind.__name__}
    )
    shapes = {name: _names_and_types(schema) for name, schema in schemas.items()}
    return hashlib.sha256(msgspec.json.encode(shapes, order="sorted")).hexdigest()[:16]


# What a JSON schema says besides names and types. A docstring is in it, and Python 3.13 indents
# docstrings unlike 3.11.
_NOT_TYPES = {"description", "default", "examples", "$comment"}


def _names_and_types(schema: Any) -> Any:
    """A JSON schema without what is no name and no type."""
    if isinstance(schema, list):
        return [_names_and_types(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {}
    for word, value in schema.items():
        if word == "properties":  # a field may have such a name
            kept[word] = {
                name: _names_and_types(field) for name, field in value.items()
            }
        elif word not in _NOT_TYPES:
            kept[word] = _names_and_types(value)
    return kept


def short_name(client_id: str) -> str:
    """Locust's name of a worker (host_32 hex digits), shortened for people: host_8 digits."""
    host, _, digits = client_id.rpartition("_")
    return f"{host}_{digits[:8]}"
