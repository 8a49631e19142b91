"""Server-sent events, however the bytes are cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_load.loadgen.wire.sse import MAX_EVENT_BYTES, EventStream, EventTooLarge


def decode(*chunks: bytes) -> list[bytes]:
    stream = EventStream()
    return [event for chunk in chunks for event in stream.feed(chunk)] + stream.end()


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\n", [b"a"]),
        (b"data:a\n\n", [b"a"]),
        (b"data:  a\n\n", [b" a"]),
        (b"data: a\r\n\r\n", [b"a"]),
        (b"data: a\r\r", [b"a"]),
        (b"data: a\r\n\ndata: b\n\r\n", [b"a", b"b"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data\n\n", [b""]),
        (b": comment\n\ndata: a\n\n", [b"a"]),
        (b"event: x\nid: 7\nretry: 9\ndata: a\n\n", [b"a"]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"data: a\n\ndata: b\n\n\n\ndata: c\n\n", [b"a", b"b", b"c"]),
        (b"data: [DONE]\n", [b"[DONE]"]),
        (b"data: [DONE]", [b"[DONE]"]),
        (b"id: only\n\n", []),
        ("data: 你好\u2028😀\n\n".encode(), ["你好\u2028😀".encode()]),
        (b"", []),
    ],
)
def test_streams_decode_as_the_standard_says_at_every_split(
    stream: bytes, events: list[bytes]
) -> None:
    """Whole, byte by byte, and cut in two anywhere, the events are the same."""
    assert decode(stream) == events
    assert decode(*(stream[i : i + 1] for i in range(len(stream)))) == events
    for cut in range(len(stream)):
        assert decode(stream[:cut], stream[cut:]) == events


lines = st.sampled_from(
    [
        b"data: x",
        b"data: {}",
        b"data:",
        b"data: a b",
        b": c",
        b"event: e",
        b"",
        b"",
        b"\xff",
        b"data: \xe4\xbd",
    ]
)
ends = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(st.lists(st.tuples(lines, ends)), st.lists(st.integers(0, 400)))
def test_any_split_of_any_stream_gives_the_same_events(
    parts: list[tuple[bytes, bytes]], cuts: list[int]
) -> None:
    """Random lines, line ends and cuts. (CR at the end of a line followed by an empty LF line reads
    as CRLF in both.)"""
    stream = b"".join(line + end for line, end in parts)
    edges = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    assert decode(*(stream[a:b] for a, b in pairwise(edges))) == decode(stream)


@given(st.binary(max_size=300), st.integers(0, 300))
def test_any_bytes_at_all_decode_without_an_exception(stream: bytes, cut: int) -> None:
    assert decode(stream[:cut], stream[cut:]) == decode(stream)


def test_an_endless_line_is_refused() -> None:
    """Memory stays bounded against a server that never ends its line."""
    stream = EventStream()
    with pytest.raises(EventTooLarge):
        for _ in range(MAX_EVENT_BYTES // 65536 + 2):
            stream.feed(b"x" * 65536)


def test_an_endless_event_is_refused() -> None:
    stream = EventStream()
    with pytest.raises(EventTooLarge):
        for _ in range(MAX_EVENT_BYTES // 65536 + 2):
            stream.feed(b"data: " + b"x" * 65536 + b"\n")
