"""A request, its timeouts, and the reader of its answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from llama_load.outside.bound_headers import NO_HEADERS, BoundHeaders, field_lines
from llama_load.servers.address import Address


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Timeouts in s; None: no limit. The defaults suit prompts that take minutes to process."""

    connect_s: float | None = 10.0
    first_token_s: float | None = 600.0
    token_s: float | None = 120.0
    request_s: float | None = None  # the whole request, from its start


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The user hangs up in the middle: after so many token events, or so many seconds after the
    start."""

    tokens: int | None = None
    after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """A request: method, path (see `Address.path_of`), header fields and body. `reuse`: connections are
    reused; `keys`: headers that go to their own server alone."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...] = ()
    # or its pieces, which are sent without copying
    body: bytes | tuple[bytes, ...] = b""
    reuse: bool = False
    give_up: GiveUp | None = None
    # limit of the answer's body, where the request bounds it
    most_bytes: int | None = None
    keys: BoundHeaders = NO_HEADERS

    @property
    def pieces(self) -> tuple[bytes, ...]:
        """The body's pieces, in order."""
        return (self.body,) if isinstance(self.body, bytes) else self.body

    def head(self, address: Address) -> bytes:
        """The header block as bytes, with Host, Content-Length and Connection filled in. Raises
        OtherServerError, UnsendableError."""
        fields = [
            f"{self.method} {address.path_of(self.path)} HTTP/1.1",
            f"Host: {address.host_header}",
            "Accept-Encoding: identity",
            f"Connection: {'keep-alive' if self.reuse else 'close'}",
            f"Content-Length: {sum(map(len, self.pieces))}",
            *field_lines(self.keys.for_origin(address.origin)),
            *field_lines(self.headers),
        ]
        return ("\r\n".join(fields) + "\r\n\r\n").encode("latin-1")


class EventReader(Protocol):
    """Reads the events of an answer. Called from the event loop: it must neither block nor raise.
    `done`: the last event was the final one. `streams`: a stream of events was asked for."""

    done: bool
    streams: bool

    def event(self, data: bytes, at_ns: int) -> bool:
        """Read the data of one event, received at `at_ns`. True if it is progress (for chat: a
        token)."""
