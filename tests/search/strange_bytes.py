"""Changes of the events of a stream as bytes, in their chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.search.dialect import HEAD, LAST_CHUNK, chunk
from tests.search.effect import Reads


def reframed(reads: Reads, change: Callable[[bytes], bytes]) -> Reads:
    """The reads with each event changed; one that becomes empty is not sent. Answers that are no
    streams stay as they are."""
    if not reads[0][1].startswith(HEAD):
        return reads
    changed = []
    for at_ns, data in reads:
        begin = HEAD if data.startswith(HEAD) else b""
        body = data[len(begin) :]
        end = LAST_CHUNK if body.endswith(LAST_CHUNK) else b""
        body = body[: len(body) - len(end)]
        payloads = [change(payload) for payload in _payloads(body)]
        framed = b"".join(chunk(payload) for payload in payloads if payload)
        if begin or framed or end:
            changed.append((at_ns, begin + framed + end))
    return changed


def _payloads(body: bytes) -> Iterator[bytes]:
    """What the chunks of a read hold: the bytes of one event each."""
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        yield rest[:length]
        body = rest[length + 2 :]
