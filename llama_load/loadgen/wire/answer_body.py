"""The body of an answer."""

from __future__ import annotations

from dataclasses import dataclass, field

from llama_load.loadgen.wire.request import EventReader
from llama_load.loadgen.wire.sse import EventStream

# Limit of an answer's body that is not a stream, such as a batch of embeddings.
MAX_BODY_BYTES = 64 * 1024 * 1024
# The beginning of an error's body is enough to show the reason.
MAX_REFUSAL_BYTES = 64 * 1024


@dataclass(slots=True)
class AnswerBody:
    """The body of an answer: events, which the reader reads one by one, or data."""

    reader: EventReader
    events: EventStream | None = None
    data: bytearray = field(default_factory=bytearray)

    def keep(self, body: bytes, *, is_refusal: bool) -> bool:
        """Add to the data; False if that is more than is needed (of an error) or allowed."""
        self.data += body
        if is_refusal:
            fits = len(self.data) <= MAX_REFUSAL_BYTES
            del self.data[MAX_REFUSAL_BYTES:]
            return fits
        return len(self.data) <= MAX_BODY_BYTES
