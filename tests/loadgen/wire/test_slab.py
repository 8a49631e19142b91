"""Reads that are kept and understood later give what they give when each is understood at once:
byte for byte, stamp for stamp.

Recorded answers of real servers, cut anywhere, damaged, late, too long, go through the same
connection twice. `ReadByRead` is the oracle: its exchange keeps nothing.
"""

from __future__ import annotations

import errno
import math
import struct
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from gevent.hub import Waiter
from hypothesis import given
from hypothesis import strategies as st

from llama_load.ground.clock import SO_TIMESTAMPNS
from llama_load.loadgen.wire import read_loop
from llama_load.loadgen.wire.answer_body import AnswerBody
from llama_load.loadgen.wire.connection import OPEN, Connection
from llama_load.loadgen.wire.exchange import Exchange
from llama_load.loadgen.wire.phase_clock import DONE, PhaseClock
from llama_load.loadgen.wire.poller import READABLE
from llama_load.loadgen.wire.read_loop import ReadLoop
from llama_load.loadgen.wire.request import Request, Timeouts
from llama_load.loadgen.wire.slab import (
    KEPT_READ_BYTES,
    MOST_BYTES,
    READ_OVERHEAD_BYTES,
    Slab,
    one_event,
)
from llama_load.servers.answer import AnswerReader
from tests.answer_pipeline import ADDRESS
from tests.scripted_server import DONE as DONE_EVENT
from tests.scripted_server import END, FINISH, STREAM, chunk, token
from tests.transcripts import timed

NAMES = (
    *(
        "llama_stream",
        "llama_stream_no_usage",
        "llama_stream_merged_utf8",
        "llama_stream_timings_per_token",
        "llama_rpc_worker_killed",
    ),
    *(
        "vllm_stream",
        "vllm_stream_interval5",
        "vllm_stream_continuous_usage",
        "vllm_stream_continuous_usage_n2",
    ),
)
FD = 7
START_NS = 10**12
MS = 1_000_000
USER_SPACE = -1  # instead of a stamp


class ReadByRead(Exchange):
    """An exchange that keeps no read."""

    def _keep_reads(self) -> None:
        pass


class Pool:
    """Stands in for the pool and its poller: takes note of what waits for its turn."""

    def __init__(self) -> None:
        self.good_endpoint: dict[Any, int] = {}
        self.connections: dict[int, Connection] = {}
        self.streams: dict[int, Any] = {}
        self.waiting: list[Exchange] = []
        self.gap_ns = math.inf
        self.gaps: list[float] = []
        self.held = 0
        self.pieces: list[int] = []  # how many reads each turn understood

    @property
    def poller(self) -> Pool:
        return self

    def keep_reads(self, connection: Connection, *rest: Any) -> None:
        self.streams[FD] = connection, *rest

    def unregister(self, _: Connection) -> None:
        self.connections.clear()
        self.streams.clear()

    def understand_later(self, exchange: Exchange) -> None:
        self.waiting.append(exchange)

    def record_gap(self, gap_ns: int) -> None:
        self.record_gaps(1, 1, gap_ns)

    def record_gaps(self, count: int, shorter: int, shortest_ns: float) -> None:
        assert count == shorter == 1
        self.gaps.append(shortest_ns)

    def hold(self, _: Connection) -> None:
        self.held += 1

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


@dataclass
class Socket:
    """Gives one read after the other, with its stamp; after the last one the end of the
    connection."""

    reads: list[tuple[bytes, int]]
    now_ns: int = START_NS

    def recvmsg(
        self, most_bytes: int, _: int
    ) -> tuple[bytes, list[tuple[int, int, bytes]], int, None]:
        if not self.reads:
            return b"", [], 0, None
        data, stamp_ns = self.reads.pop(0)
        if not data:
            raise BlockingIOError(errno.EAGAIN, "nothing to read")
        if len(data) > most_bytes:  # the rest stays with the kernel
            self.reads.insert(0, (data[most_bytes:], stamp_ns))
        if stamp_ns == USER_SPACE:
            return data[:most_bytes], [], 0, None
        self.now_ns = max(self.now_ns, stamp_ns)
        return (
            data[:most_bytes],
            [(1, 35, struct.pack("=qq", *divmod(stamp_ns, 10**9)))],
            0,
            None,
        )

    def recvmsg_into(
        self, buffers: Sequence[bytearray], size: int
    ) -> tuple[int, list[tuple[int, int, bytes]], int, None]:
        data, *rest = self.recvmsg(len(buffers[0]), size)
        buffers[0][: len(data)] = data
        return len(data), *rest

    def close(self) -> None:
        pass


@dataclass
class Script:
    """Reads with their stamps, what of them is understood in between, and the limits of the
    request."""

    reads: list[tuple[bytes, int]]
    # reads after which the waiting slabs have their turn
    turns: set[int] = field(default_factory=set)
    looks: set[int] = field(
        default_factory=set
    )  # reads after which timeouts are judged
    most_bytes: int | None = None
    timeouts: Timeouts = field(default_factory=Timeouts)
    end: str = "close"


def play(
    script: Script, kind: type[Exchange], monkeypatch: pytest.MonkeyPatch
) -> tuple[dict[str, Any], Pool]:
    """Everything that is known of the answer afterwards."""
    pool, reader = Pool(), AnswerReader()
    sock = Socket([])
    monkeypatch.setattr(time, "monotonic_ns", lambda: sock.now_ns)
    monkeypatch.setattr(read_loop, "wall_minus_mono_ns", lambda: 0)
    request = Request("POST", "/", most_bytes=script.most_bytes)
    exchange = kind(
        pool,
        ADDRESS,
        request,
        PhaseClock(script.timeouts),
        AnswerBody(reader),
        Waiter(),
        lambda _: None,
    )
    connection = Connection(pool, ADDRESS)  # type: ignore[arg-type]
    connection._sock, connection.state, connection.opening.connected_ns = (
        sock,
        OPEN,
        START_NS,
    )  # type: ignore[assignment]
    connection.exchange, exchange.connection = exchange, connection
    exchange.on_start()
    pool.connections[FD] = connection
    reads = ReadLoop()

    def read_on() -> None:
        reads.handle(pool, [(FD, READABLE)])  # type: ignore[arg-type]

    for number, (data, at) in enumerate(script.reads):
        if exchange.clock.phase == DONE:
            break
        sock.reads = [(data, at), (b"", 0)]
        read_on()
        if number in script.turns:
            while pool.waiting:
                waiting = pool.waiting.pop()
                assert waiting.slab is not None
                before = len(waiting.slab.reads)
                waiting.understand(-1)  # the least piece of work, as often as needed
                pool.pieces.append(before - len(waiting.slab.reads))
                waiting.slab.queued = bool(waiting.slab.reads)
                if waiting.slab.queued:
                    pool.waiting.append(waiting)
        if number in script.looks and (
            exchange.is_overdue(sock.now_ns) or exchange.is_silent(sock.now_ns)
        ):
            exchange.understand()
    if script.end == "close" and exchange.clock.phase != DONE:
        sock.reads = []
        read_on()
    elif script.end == "cancel":
        exchange.cancel()
    else:
        exchange.fail("client_timeout", "the locustfile stopped waiting")
    return found_in(exchange, reader), pool


def found_in(exchange: Exchange, reader: AnswerReader) -> dict[str, Any]:
    """Everything that is known of an answer."""
    found = {
        name: getattr(exchange, name)
        for name in (
            "stamps",
            "counts",
            "failure",
            "cancelled",
            "status",
            "headers",
            "body",
        )
    }
    found |= vars(reader)
    found["others"] = {
        index: (said.text, said.finish_reason) for index, said in reader.others.items()
    }
    found |= {
        "complete": exchange.response.complete,
        "open": exchange.response.leaves_the_connection_open,
    }
    return found


def same(script: Script) -> tuple[dict[str, Any], Pool]:
    """Both ways, compared."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        expected, _ = play(
            Script(list(script.reads), **_rest(script)), ReadByRead, monkeypatch
        )
        found, pool = play(script, Exchange, monkeypatch)
    assert found == expected
    return found, pool


def _rest(script: Script) -> dict[str, Any]:
    return {
        name: getattr(script, name)
        for name in ("turns", "looks", "most_bytes", "timeouts", "end")
    }


def every(reads: Sequence[bytes], gap_ms: float = 20.0) -> list[tuple[bytes, int]]:
    return [
        (data, START_NS + int(number * gap_ms * MS))
        for number, data in enumerate(reads)
    ]


if SO_TIMESTAMPNS is None:
    pytestmark = pytest.mark.skip(reason="without kernel stamps no read is kept")


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    """A recorded answer: its events in reads of their own, some merged, some cut in two, a byte
    damaged, some reads late."""
    capture = timed(draw(st.sampled_from(NAMES)))
    steps = [step for step in capture.steps if isinstance(step, bytes)]
    if (
        draw(st.booleans()) and len(steps) > 3
    ):  # the same events again: slabs that are full
        steps = [steps[0], *steps[1:-1] * draw(st.integers(1, 8)), steps[-1]]
    whole, edges, at = b"".join(steps), [], 0
    merged = draw(st.sets(st.integers(0, len(steps)), max_size=6))
    for number, step in enumerate(steps):
        at += len(step)
        if number not in merged:
            edges.append(at)
    edges = sorted(
        {
            0,
            len(whole),
            *edges,
            *draw(st.sets(st.integers(1, len(whole) - 1), max_size=6)),
        }
    )
    if draw(st.booleans()):
        place = draw(st.integers(0, len(whole) - 1))
        whole = (
            whole[:place]
            + bytes([draw(st.sampled_from(b'\r\n{}",:0aX\xff '))])
            + whole[place + 1 :]
        )
    late = draw(st.sets(st.integers(0, len(edges)), max_size=2))
    reads, now_ns = [], START_NS
    for number, (a, b) in enumerate(zip(edges, edges[1:], strict=False)):
        now_ns += (1500 if number in late else 20) * MS
        reads.append((whole[a:b], now_ns))
    some = st.sets(st.integers(0, len(reads)), max_size=8)
    return Script(
        reads,
        draw(some),
        draw(some),
        draw(st.none() | st.integers(1000, 2 * len(whole))),
        Timeouts(
            5,
            *draw(
                st.sampled_from(
                    [(600.0, 120.0, None), (5.0, 1.0, None), (600.0, 120.0, 3.0)]
                )
            ),
        ),
        draw(st.sampled_from(["close", "cancel", "fail"])),
    )


@given(scripts())
def test_any_reads_of_a_recorded_answer_give_the_same_result(script: Script) -> None:
    same(script)


@pytest.mark.parametrize("name", NAMES)
def test_an_event_a_read_is_kept_and_gives_the_same_result(name: str) -> None:
    """As servers send it. The gaps between reads are learnt at once, although no event is
    understood yet."""
    steps = [step for step in timed(name).steps if isinstance(step, bytes)]
    found, pool = same(Script(every(steps)))
    assert len(found["token_ns"]) == len(set(found["token_ns"]))
    assert pool.gaps and set(pool.gaps) == {20 * MS}


def test_the_exchange_keeps_all_but_beginning_and_end() -> None:
    """Otherwise the tests above would compare an exchange with itself."""
    reads = every([STREAM, *[token()] * 40, FINISH, DONE_EVENT, END])
    with pytest.MonkeyPatch.context() as monkeypatch:
        kept: list[int] = []
        emptied = Slab.emptied
        monkeypatch.setattr(
            Slab, "emptied", lambda slab: (kept.extend(slab.stamps), emptied(slab))[1]
        )
        play(Script(list(reads)), ReadByRead, monkeypatch)
        assert not kept
        play(Script(list(reads)), Exchange, monkeypatch)
    assert len(kept) >= 39


def test_a_slab_takes_its_turn_when_full_or_when_the_answer_may_be_over() -> None:
    """Not read on meanwhile in the second case: the end of the connection would be understood
    before its turn."""
    full = MOST_BYTES // (len(token()) + READ_OVERHEAD_BYTES) + 3
    _, pool = same(Script(every([STREAM, *[token()] * full])))
    assert (len(pool.waiting), pool.held) == (1, 0)
    _, pool = same(Script(every([STREAM, *[token()] * 50, END])))
    assert (len(pool.waiting), pool.held) == (1, 1)


def test_a_slab_is_understood_in_pieces() -> None:
    """After each read that needs the parsers its time may be over; reads of one event are far
    cheaper, and go together."""
    _, pool = same(
        Script(every([STREAM, token(), *[token() * 2] * 20, END]), turns={22})
    )
    assert pool.pieces == [1] * 21
    _, pool = same(
        Script(every([STREAM, token(), token() * 2, *[token()] * 20, END]), turns={23})
    )
    assert pool.pieces == [1, 21]


@pytest.mark.parametrize("size", [200, 3_000, KEPT_READ_BYTES - 100, 60_000])
def test_a_server_that_floods_us_fills_no_memory(size: int) -> None:
    """Nobody has a turn: what arrives faster than it is understood is understood as it comes."""
    big = chunk(b'data: {"choices":[{"delta":{"content":"' + b"x" * size + b'"}}]}\n\n')
    count, most = 2_000_000 // size, 0
    with pytest.MonkeyPatch.context() as monkeypatch:
        emptied = Slab.emptied

        def weigh(slab: Slab) -> tuple[list[bytes], list[int]]:
            nonlocal most
            most = max(
                most,
                sum(
                    map(
                        sys.getsizeof,
                        (slab.reads, slab.stamps, *slab.reads, *slab.stamps),
                    )
                ),
            )
            return emptied(slab)

        monkeypatch.setattr(Slab, "emptied", weigh)
        found, _ = play(Script(every([STREAM, *[big] * count])), Exchange, monkeypatch)
    assert 32 * 1024 < most <= 64 * 1024 or size > KEPT_READ_BYTES
    assert len("".join(found["pieces"])) == count * size


def test_the_final_event_of_a_silent_stream_is_understood() -> None:
    """[DONE] has come and the stream stays open: the next look for timeouts understands it, so that
    the answer can end."""
    reads = every([STREAM, *[token()] * 3, FINISH, DONE_EVENT])
    last = len(reads) - 1
    with pytest.MonkeyPatch.context() as monkeypatch:
        found, _ = play(
            Script(
                [*reads, (chunk(b": still here\n\n" * 3), reads[-1][1] + 400 * MS)],
                looks={last, last + 1},
            ),
            Exchange,
            monkeypatch,
        )
    assert found["done"]


LIKE_A_TOKEN = chunk(b'data: {"choices":[{"delta":{"content":"within"}}]}\n\n')


@pytest.mark.parametrize(
    "before",
    [
        b"ff\r\n: comment\n",  # the middle of a chunk
        chunk(b'data: {"choices":\n'),  # the middle of an event of several lines
        chunk(b": comment"),  # the middle of a line
        token("b") + b"3",  # the size of the next chunk is cut in two: 357 bytes
        chunk(b"data: {}\r"),  # a line end that may go on
    ],
)
def test_what_looks_like_an_event_within_something_else_is_none(before: bytes) -> None:
    """A read that is exactly a chunk of an event, but begins in the middle of a chunk, of its size,
    of an event or of a line."""
    first = [STREAM, *[token()] * 3]
    _, pool = same(
        Script(
            every(
                [
                    *first,
                    before,
                    LIKE_A_TOKEN,
                    LIKE_A_TOKEN,
                    LIKE_A_TOKEN,
                    b"x" * 400 + b"\r\n",
                    END,
                ]
            )
        )
    )
    assert pool.gaps


@pytest.mark.parametrize(
    ("data", "event"),
    [
        (chunk(b"data: {}" + b" " * 20 + b"\n\n"), b"{}" + b" " * 20),
        (chunk(b"data: " + b"x" * 3000 + b"\n\n"), b"x" * 3000),
        (chunk(b"data: {}\n\n"), b"{}"),
        (chunk(b"data: a\n\n") * 2, None),
        (chunk(b"data: a\ndata: b\n\n"), None),
        (chunk(b"data: a\rdata: b\n\n"), None),
        (chunk(b"data: a\n\n")[:-1], None),
        (chunk(b"data:a\n\n"), None),
        (chunk(b": comment\n\n"), None),
        (chunk(b"data: " + b"x" * 9000 + b"\n\n"), None),
        (b"00a\r\ndata: {}\n\n\r\n", None),
        (b"A\r\ndata: {}\n\n\r\n", None),
        (b"b\r\ndata: {}\n\n\r\n", None),
        (b"a;x=y\r\ndata: {}\n\n\r\n", None),
        (b"", None),
    ],
)
def test_one_event_is_known_by_its_bytes(data: bytes, event: bytes | None) -> None:
    """What is not exactly one chunk of one event of one line is left to the parsers."""
    assert one_event(data) == event
