"""What is noted of a request on the wire: when what happened, how its connection was opened, and what was read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Stamps:
    """When what happened, monotonic ns. `started`, `first_write` and `sent` are taken by the clock; `headers`, progress and `ended`
    are the kernel's receive stamps of the reads that brought them (see `llama_load.wire.clock`)."""

    started_ns: int = 0
    attempt_ns: int = 0  # when the connection that was used in the end was tried: `started_ns`, unless reopened
    first_write_ns: int | None = None
    sent_ns: int | None = None
    headers_ns: int | None = None
    first_progress_ns: int | None = None
    last_progress_ns: int | None = None
    ended_ns: int | None = None


@dataclass(slots=True)
class Opening:
    """How a connection was opened: connected (by the clock) and secured (TLS done, by the kernel's stamp), monotonic ns; how long
    the kernel's handshake took; whether an earlier TLS session was resumed."""

    connected_ns: int | None = None
    secured_ns: int | None = None
    handshake_ns: int | None = None
    tls_resumed: bool = False


@dataclass(slots=True)
class ReadCounts:
    """What was read of an answer. `merged` counts progress events that shared their read with a later one, so that their own
    arrival time is unknown; `user_space_reads` those reads that have no stamp of the kernel. `headers_alone`: the header block came
    in a read without any body."""

    reads: int = 0
    user_space_reads: int = 0
    received_bytes: int = 0
    progress_events: int = 0
    merged: int = 0
    first_merged: bool = False
    headers_alone: bool = False
