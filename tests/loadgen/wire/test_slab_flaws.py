"""Damaged, odd and hostile streams through both ways of reading: reads that are kept, and each read
understood at once."""

from __future__ import annotations

import gzip

import pytest

from llama_load.ground.clock import SO_TIMESTAMPNS
from llama_load.loadgen.wire.request import Timeouts
from tests.loadgen.wire.test_slab import MS, START_NS, USER_SPACE, Script, every, same
from tests.scripted_server import DONE, END, FINISH, GOOD_STREAM, STREAM, chunk, token

if SO_TIMESTAMPNS is None:
    pytestmark = pytest.mark.skip(reason="without kernel stamps no read is kept")

FIRST = [STREAM, *[token()] * 20]
LAST = [token("last")] * 3 + [FINISH, DONE, END]
EVENT = b'data: {"choices":[{"delta":{"content":"odd"}}]}'
LIKE_A_TOKEN = chunk(EVENT + b"\n\n")
PAD = b": a comment that makes the read long enough to be kept\n"


def sized(size: bytes, data: bytes) -> bytes:
    """A chunk with this size line."""
    return size + b"\r\n" + data + b"\r\n"


LONG = EVENT + b" " * (0xA00 - len(EVENT) - 2) + b"\n\n"
ODD = {
    "CRLF ends lines": chunk(EVENT + b"\r\n\r\n"),
    "CR ends lines": chunk(EVENT + b"\r\r"),
    "line ends are mixed": chunk(
        EVENT + b"\r\n\n" + EVENT + b"\n\r\n" + EVENT + b"\n\r" + EVENT + b"\n\n"
    ),
    "CR LF in two chunks": chunk(EVENT + b"\n\r") + chunk(b"\n" + EVENT + b"\n\n"),
    "an event in three chunks": chunk(EVENT[:20]) + chunk(EVENT[20:]) + chunk(b"\n\n"),
    "an event ends with the chunk after": chunk(EVENT) + chunk(b"\n\n"),
    "an event of two lines": chunk(
        b'data: {"choices":\ndata: [{"delta":{"content":"two"}}]}\n\n'
    ),
    "a BOM in the middle": chunk(b"\xef\xbb\xbf" + EVENT + b"\n\n"),
    "other fields": chunk(b"event: x\nid: 7\nretry: 10\n" + EVENT + b"\n\n"),
    "an empty event": chunk(b"data: \n\n" + PAD + b"\n"),
    "leading zeros": sized(b"%08x" % len(EVENT + b"\n\n"), EVENT + b"\n\n"),
    "upper case": sized(b"A00", LONG),
    "a chunk extension": sized(
        b"%x;name=value" % len(EVENT + b"\n\n"), EVENT + b"\n\n"
    ),
    "a size that ends in LF": b"%x\n" % len(EVENT + b"\n\n") + EVENT + b"\n\n\r\n",
    "no line end after the chunk": b"%x\r\n" % len(EVENT + b"\n\n") + EVENT + b"\n\n",
    "a size too small": sized(b"8", EVENT + b"\n\n"),
    "a size too large": sized(b"fff", EVENT + b"\n\n"),
    "a size beyond all bounds": sized(b"f" * 17, EVENT + b"\n\n"),
    "a negative size": sized(b"-5", EVENT + b"\n\n"),
    "a hexadecimal prefix": sized(b"0x39", EVENT + b"\n\n"),
    "no size": b"\r\n" + LIKE_A_TOKEN,
    "NUL in an event": chunk(b'data: {"choices":[{"delta":{"content":"a\x00b"}}]}\n\n'),
    "NUL after an event": chunk(EVENT + b"\n\n\x00\n\n"),
    "NUL in a size": b"\x00" + LIKE_A_TOKEN,
    "NUL instead of data": b"\x00" * 60 + b"\n\n\r\n",
    "not UTF-8": chunk(b'data: {"choices":[{"delta":{"content":"\xff\xfe"}}]}\n\n'),
    "no JSON": chunk(b"data: {nothing of the kind, but long enough\n\n"),
    "an error event": chunk(
        b'data: {"error":{"message":"out of memory","code":500}}\n\n'
    ),
    "a chunk within a chunk": chunk(LIKE_A_TOKEN * 2),
    "the end within a chunk": chunk(b": " + END + PAD + b"\n\n"),
    "a chunk of nothing ends it": END,
    "many zeros end it": b"0000000\r\n\r\n",
    "the end with an extension": b"0;last=yes\r\n\r\n",
    "the end with trailers": b"0\r\nX-Tokens: 23\r\nX-Checksum: 0123456789abcdef\r\n\r\n",
    "the end with a trailer of blank lines": b"0\r\nX-Tokens: 0123456789abcdef\n\n\r\n",
    "bytes after the end": END + b"\r\n" * 20,
    "events after the end": END + LIKE_A_TOKEN * 2,
    "a second answer": END + b"".join(GOOD_STREAM),
    "another answer in the middle": b"".join(GOOD_STREAM),
    "100 Continue in the middle": b"HTTP/1.1 100 Continue\r\n\r\n" + LIKE_A_TOKEN,
    "100 Continue after the end": END + b"HTTP/1.1 100 Continue\r\n\r\n\r\n",
    "tokens after [DONE]": DONE + LIKE_A_TOKEN * 2,
    "[DONE] twice": DONE + DONE + END,
    "a second finish": FINISH + LIKE_A_TOKEN + FINISH,
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_stream_gives_the_same_result(name: str) -> None:
    """In a read of its own, in one with the tokens around it, and cut in two at every byte; with
    turns in between and without."""
    odd = ODD[name]
    cuts = sorted(
        {
            *range(1, min(len(odd), 60)),
            *range(max(1, len(odd) - 8), len(odd)),
            len(odd) // 2,
        }
    )
    scripts = [
        [odd],
        [token() + odd],
        [odd + token()],
        [token() + odd + token()],
        *([odd[:cut], odd[cut:]] for cut in cuts),
    ]
    for number, middle in enumerate(scripts):
        reads = every([*FIRST, *middle, *LAST])
        same(
            Script(
                reads,
                turns=set(range(20, len(reads))) if number % 2 else set(),
                end=("close", "cancel", "fail")[number % 3],
            )
        )
    same(
        Script(
            every(
                [
                    *FIRST,
                    *(odd[place : place + 1] for place in range(min(len(odd), 400))),
                    *LAST,
                ]
            )
        )
    )


@pytest.mark.parametrize(
    "size", [KIB * 1024 for KIB in (1, 15, 16, 17, 64, 1024, 5 * 1024)]
)
def test_a_large_event_gives_the_same_result(size: int) -> None:
    """In one chunk and in chunks of 4000 bytes; up to 1 MiB it is read, one of 5 MiB fails the
    answer."""
    event = EVENT[:-5] + b"x" * size + EVENT[-5:] + b"\n\n"
    for whole in (
        chunk(event),
        b"".join(
            chunk(event[place : place + 4000]) for place in range(0, len(event), 4000)
        ),
    ):
        pieces = [
            whole[place : place + 15_000] for place in range(0, len(whole), 15_000)
        ]
        same(Script(every([*FIRST, *pieces, *LAST], 1.0)))


def test_an_answer_that_is_compressed_unasked_gives_the_same_result() -> None:
    """Nothing of it is kept, also where its bytes end like an event."""
    head = STREAM.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n", 1)
    body = chunk(gzip.compress(b"".join([token()] * 20)) + b"\n\n")
    found, _ = same(Script(every([head, *[body] * 20, END])))
    assert not found["token_ns"]


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
    ],
)
def test_informational_answers_before_the_stream_give_the_same_result(
    head: bytes,
) -> None:
    for reads in (
        [head, *FIRST, *LAST],
        [head * 3 + STREAM + token(), *FIRST[1:], *LAST],
        [head[:9], head[9:] + STREAM, *FIRST[1:], *LAST],
    ):
        found, _ = same(Script(every(reads)))
        assert found["status"] == 200


@pytest.mark.parametrize("stamp", [USER_SPACE, START_NS, START_NS + 10**12])
def test_odd_stamps_give_the_same_result(stamp: int) -> None:
    """A read without a stamp, one with an earlier stamp than its predecessor, one from the
    future."""
    for place in (1, 5, 20, 21, 22):
        reads = every([*FIRST, *LAST])
        reads[place] = reads[place][0], stamp
        same(Script(reads))


@pytest.mark.parametrize("late_ms", [900, 1100, 5000])
@pytest.mark.parametrize("place", [2, 10, 20, 22])
def test_timeouts_among_kept_reads_give_the_same_result(
    late_ms: int, place: int
) -> None:
    """No token for 1 s, no complete answer within 1.5 s, more bytes than allowed."""
    reads = every([*FIRST, *LAST])
    late = [
        (data, at + (number >= place) * late_ms * MS)
        for number, (data, at) in enumerate(reads)
    ]
    for timeouts in (Timeouts(5, 5.0, 1.0), Timeouts(5, 5.0, 60.0, 1.5)):
        for looks in (set(), {place - 1, place, place + 1}):
            same(Script(list(late), looks=looks, timeouts=timeouts))
    for most_bytes in (900, 901, 950, 1200):
        same(Script(list(late), most_bytes=most_bytes))
