"""What a reader of an answer needs of its exchange, which the wire makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from llama_load.servers.wire_failure import WireFailure


class EndedExchange(Protocol):
    """A request and its answer, ended in any way; header names are in lower case. `body` is empty
    for a stream. See `loadgen.wire.exchange.Exchange`."""

    @property
    def failure(self) -> WireFailure | None:
        """Why no complete answer was received."""

    @property
    def cancelled(self) -> bool:
        """Whether the client ended it."""

    @property
    def status(self) -> int | None:
        """The answer's HTTP status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The answer's headers."""

    @property
    def body(self) -> bytes | bytearray:
        """The answer's body."""

    @property
    def is_stream(self) -> bool:
        """Whether its body was read as a stream of events."""

    @property
    def error_frame(self) -> bytes:
        """What an event or a field named error said; empty: nothing."""

    @property
    def other_lines(self) -> bytes:
        """The first lines of a stream that are no field of events."""

    @property
    def has_body_end(self) -> bool:
        """Whether the body ended as HTTP has it."""
