"""An HTTP/1.1 answer, fed as it comes: status, header fields, body with its framing taken off. Uses httptools (llhttp)."""

from __future__ import annotations

import httptools

from llama_load.wire.errors import WireFailure

# A header block beyond this is no answer of a server that wants to be understood.
MAX_HEADER_BYTES = 256 * 1024


class Response:
    """Incremental reader of one answer; informational answers (100 Continue) before it are passed over.

    `status` is None until the header block is complete. Header names are in lower case.
    """

    __slots__ = ("_head_bytes", "_parser", "_pieces", "complete", "headers", "status")

    def __init__(self) -> None:
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.complete = False  # by its own framing; an answer without any is complete when the connection ends
        self._pieces: list[bytes] = []
        self._head_bytes = 0
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: memoryview) -> bytes | WireFailure:
        """The body bytes in `data`, chunk framing removed; or why this is no answer."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            return WireFailure("protocol", "the server wants to switch protocols")
        except httptools.HttpParserError as error:
            return WireFailure("protocol", f"the answer is no valid HTTP/1.1: {error}")
        pieces = self._pieces
        if pieces:
            body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            pieces.clear()
            return body
        if self.status is None:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEADER_BYTES:
                return WireFailure("too_large", f"the answer's header block is larger than {MAX_HEADER_BYTES} bytes")
        return b""

    @property
    def ends_with_the_connection(self) -> bool:
        """Whether the body has no framing of its own, so that the end of the connection is its end."""
        chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        return self.status is not None and not chunked and "content-length" not in self.headers

    @property
    def is_event_stream(self) -> bool:
        """Whether this is a good answer made of server-sent events."""
        good = self.status is not None and 200 <= self.status < 300
        return good and self.headers.get("content-type", "").lower().startswith("text/event-stream")

    def release(self) -> None:
        """Let go of the parser, which holds this object's methods: without that, only the garbage collector ends the cycle."""
        self._parser = None

    # ------------------------------------------------------------------ httptools' callbacks

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header field is complete."""
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The header block is complete."""
        status = self._parser.get_status_code()
        if status >= 200:
            self.status = status

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        """The message is complete."""
        if self.status is None:
            self.headers.clear()
        else:
            self.complete = True
