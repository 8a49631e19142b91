"""Measurements of a request on the wire: timestamps, how its connection was opened, and counts of
reads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Stamps:
    """Timestamps, monotonic ns. `started`, `first_write` and `sent` are from the process's clock;
    `headers`, progress and `ended` are the kernel's receive timestamps of their reads (see
    `llama_load.ground.clock`)."""

    started_ns: int = 0
    # start on the connection that was finally used: `started_ns`, unless reopened or sent again
    attempt_ns: int = 0
    first_write_ns: int | None = None
    sent_ns: int | None = None
    headers_ns: int | None = None
    first_progress_ns: int | None = None
    last_progress_ns: int | None = None
    ended_ns: int | None = None


@dataclass(slots=True)
class Opening:
    """How a connection was opened, monotonic ns: connected (process's clock), secured (TLS done,
    kernel timestamp), the duration of the TCP handshake in the kernel; and whether an earlier TLS
    session was resumed."""

    connected_ns: int | None = None
    secured_ns: int | None = None
    handshake_ns: int | None = None
    tls_resumed: bool = False


@dataclass(slots=True)
class ReadCounts:
    """Counts of an answer's reads. `merged`: progress events read together with a later one, so
    that their own arrival time is unknown; `user_space_reads`: reads without a kernel timestamp.
    `headers_alone`: the header block came in a read without body."""

    reads: int = 0
    user_space_reads: int = 0
    received_bytes: int = 0
    progress_events: int = 0
    merged: int = 0
    first_merged: bool = False
    headers_alone: bool = False
