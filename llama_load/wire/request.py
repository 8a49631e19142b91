"""What to send, how long to wait, and who reads the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from llama_load.wire.address import Address


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds; None means no limit. The defaults leave room for prompts that take a minute to process."""

    connect_s: float | None = 10.0
    first_token_s: float | None = 600.0
    token_s: float | None = 120.0


@dataclass(frozen=True, slots=True)
class Request:
    """What to send: method, path below the base URL, header fields and body; and whether connections are used again."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | tuple[bytes, ...] = b""  # or its pieces, which are sent without being put together
    reuse: bool = False
    most_bytes: int | None = None  # of the answer's body, where what was asked for bounds it

    @property
    def pieces(self) -> tuple[bytes, ...]:
        """The body's pieces, in order."""
        return (self.body,) if isinstance(self.body, bytes) else self.body

    def head(self, address: Address) -> bytes:
        """The header block as bytes, with Host, Content-Length and Connection filled in."""
        fields = [
            f"{self.method} {address.base_path}{self.path} HTTP/1.1",
            f"Host: {address.host_header}",
            "Accept-Encoding: identity",
            f"Connection: {'keep-alive' if self.reuse else 'close'}",
            f"Content-Length: {sum(map(len, self.pieces))}",
            *(f"{name}: {value}" for name, value in self.headers),
        ]
        return ("\r\n".join(fields) + "\r\n\r\n").encode("latin-1")


class EventReader(Protocol):
    """Who reads the events of an answer. Called from the event loop: it must neither block nor raise. `done`: the last event said
    that it is the last."""

    done: bool

    def event(self, data: bytes, at_ns: int) -> bool:
        """Take the data of one event, received at `at_ns`. True if it was progress (for chat: a token)."""
