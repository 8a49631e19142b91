"""Incremental HTTP/1.1 answer: status, header fields, body without framing. Uses httptools
(llhttp)."""

from __future__ import annotations

import httptools

from llama_load.ground.failure_kind import FailureKind
from llama_load.outside.foreign_text import printable
from llama_load.servers.wire_failure import WireFailure

# Limit of the header block.
MAX_HEADER_BYTES = 256 * 1024


class Response:
    """Incremental reader of one answer; informational answers (100 Continue) before it are skipped.

    `status` is None until the header block is complete. Header names are in lower case.
    """

    __slots__ = (
        "_keep_alive",
        "_overhead_bytes",
        "_parser",
        "_pieces",
        "_surplus",
        "between_chunks",
        "complete",
        "headers",
        "status",
    )

    def __init__(self) -> None:
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        # by its framing; an answer without framing is complete when the connection ends
        self.complete = False
        # the header block or a chunk is complete, and at most a piece of the next size has come
        self.between_chunks = False
        self._pieces: list[bytes] = []
        # since the last body bytes: headers, chunk extensions, trailers
        self._overhead_bytes = 0
        self._keep_alive = False
        self._surplus = False  # bytes came after the end of the answer
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes | memoryview) -> bytes | WireFailure:
        """The body bytes in `data`, without chunk framing; or the failure if it is not a valid
        answer."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            return WireFailure(
                FailureKind.PROTOCOL, "the server tried to switch protocols"
            )
        except httptools.HttpParserError as error:
            if not self.complete:
                return WireFailure(
                    FailureKind.PROTOCOL, f"the answer is not valid HTTP/1.1: {error}"
                )
            self._surplus = True
        pieces = self._pieces
        if pieces:
            self._overhead_bytes = 0
            body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            pieces.clear()
            return body
        self._overhead_bytes += len(data)
        if self._overhead_bytes > MAX_HEADER_BYTES:
            return WireFailure(
                FailureKind.TOO_LARGE,
                f"the answer's header block is larger than {MAX_HEADER_BYTES} bytes",
            )
        return b""

    @property
    def ends_with_the_connection(self) -> bool:
        """Whether the body has no framing, so that it ends with the connection."""
        return (
            self.status is not None
            and not self.is_chunked
            and "content-length" not in self.headers
        )

    @property
    def is_chunked(self) -> bool:
        """Whether the body comes in chunks with their sizes."""
        return "chunked" in self.headers.get("transfer-encoding", "").lower()

    @property
    def nothing_yet(self) -> bool:
        """Whether no byte of an answer has been received."""
        return self.status is None and not self._overhead_bytes

    @property
    def is_success(self) -> bool:
        """Whether the status is 2xx."""
        return self.status is not None and 200 <= self.status < 300

    @property
    def is_plain(self) -> bool:
        """Whether its body is not compressed."""
        return self.headers.get("content-encoding", "identity").lower() == "identity"

    @property
    def is_event_stream(self) -> bool:
        """Whether this is a successful answer of server-sent events."""
        content_type = self.headers.get("content-type", "").lower()
        is_stream = content_type.startswith("text/event-stream")
        return self.is_success and self.is_plain and is_stream

    @property
    def leaves_the_connection_open(self) -> bool:
        """Whether the answer is over and another request may follow on its connection."""
        return self.complete and self._keep_alive and not self._surplus

    def release(self) -> None:
        """Drop the parser, which references this object's methods, to free both without the garbage
        collector."""
        self._parser = None

    # ------------------------------------------------------------------ httptools' callbacks

    def on_message_begin(self) -> None:
        """A message begins: the answer, or a surplus one after it."""
        self._surplus = self.complete

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header field is complete. (Trailers are ignored.)"""
        if self.status is None:
            self.headers[printable(name.decode("latin-1").lower())] = printable(
                value.decode("latin-1")
            )

    def on_headers_complete(self) -> None:
        """The header block is complete."""
        self.between_chunks = True
        status = self._parser.get_status_code()
        if status >= 200 and self.status is None:
            self.status = status

    def on_chunk_header(self) -> None:
        """The size of a chunk is complete."""
        self.between_chunks = False

    def on_chunk_complete(self) -> None:
        """A chunk is complete."""
        self.between_chunks = True

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        if not self.complete:
            self._pieces.append(body)

    def on_message_complete(self) -> None:
        """The message is complete."""
        if self.status is None:
            self.headers.clear()
        elif not self.complete:
            self.complete = True
            self._keep_alive = self._parser.should_keep_alive()
